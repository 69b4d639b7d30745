"""The questions of `weir bench store`, over a small store of its own."""

from __future__ import annotations

from pathlib import Path

from weir.scripts.bench_store import make_calls
from weir.scripts.bench_store_queries import QUERIES, measure_growth, measure_queries, short_calls
from weir.store.config import StoreConfig
from weir.store.reader import connect


def test_queries_are_timed_at_rest_and_while_calls_are_written(tmp_path: Path) -> None:
    figures = measure_queries(tmp_path, make_calls(40))
    assert set(QUERIES) < set(figures) and all(value > 0 for value in figures.values())
    with connect(StoreConfig(root=tmp_path)) as db:
        assert db.sql("SELECT count(*) > 40, count(*) FILTER (session_id LIKE 'session%') FROM calls").fetchall() == [
            (True, 40)
        ]


def test_growing_stores_have_trees_of_ten_turns(tmp_path: Path) -> None:
    figures = measure_growth(tmp_path, {"small": 20, "large": 40})
    assert set(figures) == {f"{query}_{size}" for query in QUERIES for size in ("small", "large")}
    with connect(StoreConfig(root=tmp_path / "large")) as db:
        assert db.sql("SELECT count(*), max(num_turns), round(avg(reward), 2) FROM sessions").fetchall() == [
            (4, 10, 0.15)
        ]
    assert len(list(short_calls(5))) == 5
