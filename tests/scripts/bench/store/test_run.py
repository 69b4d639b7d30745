"""The queries of `weir bench store`, over a small store."""

from __future__ import annotations

from pathlib import Path

import pytest
from support_s3 import S3Server

from weir.scripts.bench.store.calls import make_calls, short_calls
from weir.scripts.bench.store.copies import measure_copies
from weir.scripts.bench.store.queries import QUERIES, measure_growth, measure_queries, record
from weir.scripts.bench.store.remote import measure_questions
from weir.scripts.bench.store.run import measure_compaction
from weir.store.config import StoreConfig
from weir.store.query import snapshot
from weir.store.reader import connect


def test_queries_are_timed_at_rest_and_while_calls_are_written(tmp_path: Path) -> None:
    figures = measure_queries(tmp_path, make_calls(40))
    assert set(QUERIES) < set(figures) and all(value > 0 for value in figures.values())
    with connect(StoreConfig(root=tmp_path)) as db:
        assert db.sql("SELECT count(*) > 40, count(*) FILTER (session_id LIKE 'session%') FROM calls").fetchall() == [
            (True, 40)
        ]


def test_a_question_about_a_version_fetches_less_from_object_storage_and_nothing_again(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "WHOLE_BYTES", 0)  # small files are fetched whole
    figures = measure_questions(tmp_path, s3.new_root(), s3.url, 40)
    assert 0 < figures["s3_version_cold_requests"] < figures["s3_all_cold_requests"]
    assert 0 < figures["s3_version_cold_kb"] < figures["s3_all_cold_kb"]
    assert figures["s3_version_again_requests"] == figures["s3_all_again_requests"] == 0


def test_growing_stores_have_trees_of_ten_turns(tmp_path: Path) -> None:
    figures = measure_growth(tmp_path, {"small": 20, "large": 40})
    assert set(figures) == {f"{query}_{size}" for query in QUERIES for size in ("small", "large")}
    with connect(StoreConfig(root=tmp_path / "large")) as db:
        assert db.sql("SELECT count(*), max(num_turns), round(avg(reward), 2) FROM sessions").fetchall() == [
            (4, 10, 0.15)
        ]
    assert len(list(short_calls(5))) == 5


def test_compacted_calls_are_smaller_than_the_same_calls_elsewhere(tmp_path: Path) -> None:
    figures = measure_compaction(tmp_path / "store", tmp_path / "aside", list(make_calls(160)))
    assert figures["calls"] == 160
    assert all(figures[f"smaller_than_{name}"] > 1 for name in ("json", "sqlite", "delta"))
    assert figures["bytes_per_id"] < 1.1 and figures["bytes_per_logprob"] < 3.5


def test_recorded_conversations_are_trees_of_ten_turns_side_by_side(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path)
    record(config, "bench", list(make_calls(160)))
    with connect(config) as db:
        shape = "SELECT count(DISTINCT call_id), max(depth), count(*) FILTER (role <> 'turn') FROM calls"
        assert db.sql(shape).fetchall() == [(160, 9, 16)]
        bridged = "SELECT count(*), count(*) FILTER (stitch_call = parent_call) FROM calls WHERE stitch = 'bridged'"
        assert db.sql(bridged).fetchall() == [(144, 144)]


def test_a_store_of_copies_has_all_their_calls_sessions_and_rewards(tmp_path: Path) -> None:
    figures = measure_copies(tmp_path, 3, 40)
    assert figures["copies_calls"] == 120
    assert {f"copies_{query}" for query in QUERIES} < set(figures) and all(value > 0 for value in figures.values())
    with connect(StoreConfig(root=tmp_path)) as db:
        assert db.sql("SELECT count(*), min(num_turns), round(avg(reward), 2) FROM sessions").fetchall() == [
            (12, 10, 0.15)
        ]
        assert db.sql("SELECT count(*) FROM calls WHERE parent_call IS NULL").fetchall() == [(12,)]
