"""Reading: SQL over an empty store, over a known one with values counted by hand, and what a connection refuses."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support_processes import PROCESSES, started
from support_store_processes import write_fifty
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.garbage import deletable
from weir.store.catalog.leases import ROUNDS, take_lease
from weir.store.catalog.proxies import seen_proxy
from weir.store.catalog.rows import EvaluationRow, Recording, RewardRow
from weir.store.config import StoreConfig
from weir.store.errors import VersionUnknown
from weir.store.log.segment_format import list_segments
from weir.store.log.writer import LogWriter
from weir.store.maintenance.compact import compact
from weir.store.query.snapshot import records_of
from weir.store.query.sql.views import VIEWS
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import CaptureLevel, FinishReason, pack_ids
from weir.store.status import store_status


@pytest.fixture(params=["log", "files", "both"])
def known(request: pytest.FixtureRequest, config: StoreConfig, record: Any, make_call: Any) -> StoreConfig:
    """Group g: session s has a root, two turns and a retry, session t a call over two versions; u has only text."""
    register(config)
    calls = [
        make_call("s0", [1, 2, 3], [4, 5], at=1_000_000, versions=[(2, "1")]),
        make_call("s1", [1, 2, 3, 4, 5, 6], [7], at=2_000_000, versions=[(1, "1")], finish=FinishReason.LENGTH),
        make_call("s2", [1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12], at=3_000_000, versions=[(3, "2")]),
        make_call("s2r", [1, 2, 3, 4, 5, 6, 7, 8, 9], [10], at=4_000_000, versions=[(1, "2")], held_us=2500),
        make_call("t0", [1, 2, 3], [4, 4, 4, 4], session_id="t", at=5_000_000, versions=[(1, "2"), (3, "3")]),
        make_call("u0", [], [], session_id="u", group_id="alone", level=CaptureLevel.TEXT, request=b"\xff not JSON"),
    ]
    before = len(calls) if request.param == "files" else 3 if request.param == "both" else 0
    if before:
        record(calls[:before], writer="first")
        compact(config)
    record(calls[before:], writer="second", seal=False)
    return config


def register(config: StoreConfig) -> None:
    catalog = Catalog.open(config)
    task = {"task_id": "add", "split": "train"}
    for name in ("s", "t"):
        catalog.register_session(name, "g", task=task, group_size=2, metadata={"n": name}, key_hash=None)
        catalog.finish_session(name, status="done", info={})
    for call, session, reward in (("s0", "s", 0.1), ("s2", "s", 1.0), ("t0", "t", 0.3)):
        catalog.add_evaluations([evaluation(call, session, reward)])
    catalog.add_rewards(
        [RewardRow(session_id="t", call_id=None, name="human", value=0.7, source="me", idempotency_key="1")]
    )
    lease = take_lease(catalog, ROUNDS, "test", 60)
    catalog.claim_groups(4, ["g"], {"seed": 0}, lease)
    catalog.commit_round(4, 2, {"loss": 0.25}, lease)
    catalog.add_version(2, path="versions/2", parent=1, round_id=4, manifest_sha256="aa")
    catalog.close()


def evaluation(call_id: str, session_id: str, raw_reward: float) -> EvaluationRow:
    return EvaluationRow(
        call_id=call_id,
        session_id=session_id,
        group_id="g",
        round_id=4,
        content_hash="h",
        compiled=True,
        correct=raw_reward == 1.0,
        fault=None if raw_reward == 1.0 else "wrong",
        raw_reward=raw_reward,
        result={"trials": 5},
        created_us=1,
    )


def ask(config: StoreConfig, query: str) -> list[tuple[Any, ...]]:
    with connect(config) as db:
        return db.sql(query).fetchall()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_an_empty_store_is_empty_and_typed(config: StoreConfig, view: str) -> None:
    with connect(config) as db:
        assert db.sql(f"SELECT * FROM {view}").fetchall() == []
        types = db.sql(f"SELECT column_type FROM (DESCRIBE {view})").fetchall()
    assert types and ("INTEGER", '"NULL"') not in types and ('"NULL"',) not in types
    assert load_calls(config, ["nobody"]) == {"nobody": []}


def test_calls_have_their_place_counts_and_versions(known: StoreConfig) -> None:
    assert ask(
        known,
        "SELECT call_id, parent_call, depth, role, twin_of, num_prompt_tokens, num_new_tokens, num_output_tokens,"
        " version_min, version_max, num_versions, spans_versions, finish FROM calls ORDER BY 1",
    ) == [
        ("s0", None, 0, "root", None, 3, 3, 2, 1, 1, 1, False, "stop"),
        ("s1", "s0", 1, "turn", None, 6, 1, 1, 1, 1, 1, False, "length"),
        ("s2", "s1", 2, "turn", None, 9, 2, 3, 2, 2, 1, False, "stop"),
        ("s2r", "s1", 2, "retry", "s2", 9, 2, 1, 2, 2, 1, False, "stop"),
        ("t0", None, 0, "root", None, 3, 3, 4, 2, 3, 2, True, "stop"),
        ("u0", None, 0, "root", None, 0, 0, 0, None, None, 0, False, "stop"),
    ]
    assert ask(known, "SELECT text, held_ms, duration_ms, first_token_ms FROM calls WHERE call_id = 's2r'") == [
        ("answer of s2r", 2.5, 10.0, 2.0)
    ]
    assert ask(known, "SELECT request FROM calls WHERE call_id = 'u0'") == [(None,)]
    assert ask(known, "SELECT request -> '$.messages[0].content' FROM calls WHERE call_id = 's0'") == [
        ('"prompt of s0"',)
    ]


def test_tokens_are_one_row_each_with_the_version_that_sampled_them(known: StoreConfig) -> None:
    assert ask(known, "SELECT position, token_id, logprob, version FROM tokens WHERE call_id = 't0' ORDER BY 1") == [
        (0, 4, -0.5, 2),
        (1, 4, -1.0, 3),
        (2, 4, -1.5, 3),
        (3, 4, -2.0, 3),
    ]
    assert ask(known, "SELECT count(*), count(DISTINCT version), sum(logprob) FROM tokens") == [(11, 3, -10.5)]


def test_sessions_and_groups_sum_up_their_calls(known: StoreConfig) -> None:
    assert ask(
        known,
        "SELECT session_id, source, status, num_calls, num_turns, num_new_tokens, num_output_tokens, reward,"
        " reward_mean, version_min, version_max FROM sessions ORDER BY 1",
    ) == [
        ("s", "path", "done", 4, 3, 8, 7, 1.0, 0.55, 1, 2),
        ("t", "path", "done", 1, 1, 3, 4, 0.7, 0.7, 2, 3),
        ("u", "path", None, 1, 1, 0, 0, None, None, None, None),
    ]
    assert ask(
        known,
        "SELECT group_id, task_id, size, num_sessions, finished, num_calls, reward_mean, reward_max, round_id, consumed"
        " FROM groups ORDER BY 1",
    ) == [
        ("alone", None, None, 1, False, 1, None, None, None, False),
        ("g", "add", 2, 2, True, 5, 0.85, 1.0, 4, True),
    ]


def test_branches_are_the_paths_to_the_leaves(known: StoreConfig) -> None:
    assert ask(
        known,
        "SELECT leaf_call, root_call, session_id, call_ids, num_calls, num_tokens, num_sampled_tokens, version_min,"
        " version_max FROM branches WHERE group_id = 'g' ORDER BY 1",
    ) == [
        ("s2", "s0", "s", ["s0", "s1", "s2"], 3, 12, 6, 1, 2),
        ("s2r", "s0", "s", ["s0", "s1", "s2r"], 3, 10, 4, 1, 2),
        ("t0", "t0", "t", ["t0"], 1, 7, 4, 2, 3),
    ]


def test_rounds_versions_rewards_and_evaluations_are_there(known: StoreConfig) -> None:
    assert ask(known, "SELECT round_id, state, weight_version, num_groups, group_ids, metrics FROM rounds") == [
        (4, "committed", 2, 1, ["g"], '{"loss": 0.25}')
    ]
    assert ask(known, "SELECT version, parent, round_id, path, published_at FROM versions") == [
        (2, 1, 4, "versions/2", None)
    ]
    assert ask(known, "SELECT session_id, call_id, name, value, source FROM rewards") == [
        ("t", None, "human", 0.7, "me")
    ]
    assert ask(known, "SELECT call_id, correct, fault, result FROM evaluations ORDER BY 1") == [
        ("s0", False, "wrong", '{"trials": 5}'),
        ("s2", True, None, '{"trials": 5}'),
        ("t0", False, "wrong", '{"trials": 5}'),
    ]


def test_load_calls_gives_whole_prompts_in_order_of_start(known: StoreConfig) -> None:
    loaded = load_calls(known, ["s", "t", "u", "nobody"])
    assert [(c.call_id, c.parent_call, c.prompt_ids.tolist(), c.output_ids.tolist()) for c in loaded["s"]] == [
        ("s0", None, [1, 2, 3], [4, 5]),
        ("s1", "s0", [1, 2, 3, 4, 5, 6], [7]),
        ("s2", "s1", [1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12]),
        ("s2r", "s1", [1, 2, 3, 4, 5, 6, 7, 8, 9], [10]),
    ]
    [over_two] = loaded["t"]
    assert over_two.versions.tolist() == [2, 3, 3, 3]
    assert over_two.output_logprobs.tolist() == [-0.5, -1.0, -1.5, -2.0]
    assert (over_two.answer_text, over_two.finish, over_two.level) == ("answer of t0", "stop", CaptureLevel.TOKENS)
    assert over_two.messages == [{"role": "user", "content": "prompt of t0"}]
    [text] = loaded["u"]
    assert (text.level, text.messages, len(text.prompt_ids), len(text.versions)) == (CaptureLevel.TEXT, [], 0, 0)
    assert loaded["nobody"] == []


def test_weights_without_a_number_cannot_be_trained_on(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2], versions=[(1, "default")])])
    with pytest.raises(VersionUnknown, match="'default'"):
        load_calls(config, ["s"])
    assert ask(config, "SELECT version_min, num_versions FROM calls") == [(None, 1)]


def test_an_assumed_version_is_a_number_to_readers_and_stays_marked(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record([make_call("a", [1], [2], versions=[(1, "assumed:7")])])
    for _ in range(2):
        [call] = load_calls(config, ["s"])["s"]
        assert call.versions.tolist() == [7]
        assert ask(config, "SELECT version_min, version_max, spans[1].label FROM calls") == [(7, 7, "assumed:7")]
        assert ask(config, "SELECT version FROM tokens") == [(7,)]
        compact(config, seal_open=True)


def test_a_late_parent_moves_calls_that_were_compacted_before(config: StoreConfig, record: Any, make_call: Any) -> None:
    place = "SELECT call_id, parent_call, depth, root_call, role FROM calls ORDER BY started_us"
    child = make_call("b", [1, 2, 3], [4], at=2_000_000)
    grandchild = make_call("c", [1, 2, 3, 4, 5], [6], at=3_000_000)
    record([child, grandchild], writer="quick")
    compact(config)
    assert ask(config, place) == [("b", None, 0, "b", "root"), ("c", "b", 1, "b", "turn")]
    record([make_call("a", [1], [2], at=1_000_000)], writer="slow")
    whole = [("a", None, 0, "a", "root"), ("b", "a", 1, "a", "turn"), ("c", "b", 2, "a", "turn")]
    assert ask(config, place) == whole
    compact(config)
    assert ask(config, place) == whole
    assert [call.parent_call for call in load_calls(config, ["s"])["s"]] == [None, "a", "b"]


def test_calls_of_another_group_are_no_parents(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2]), make_call("b", [1, 2, 3], [4], group_id="h", session_id="t")])
    assert ask(config, "SELECT call_id, parent_call FROM calls ORDER BY 1") == [("a", None), ("b", None)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('{root}/../other.csv')",
        "COPY (SELECT 1) TO '{root}/stolen.csv'",
        "COPY (SELECT 1) TO '{file}'",
        "ATTACH '{root}/other.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ],
)
def test_a_connection_reaches_nothing_but_the_stores_files(
    config: StoreConfig, record: Any, make_call: Any, statement: str
) -> None:
    record([make_call("a", [1], [2])])
    compact(config)
    [file] = (config.root / "data").iterdir()
    whole = file.read_bytes()
    (config.root.parent / "other.csv").write_text("x\n1\n")
    with connect(config) as db, pytest.raises(duckdb.Error):
        db.execute(statement.format(root=config.root, file=file))
    assert file.read_bytes() == whole
    assert not (config.root / "stolen.csv").exists()
    assert file.stat().st_mode & 0o222 == 0


def test_a_connection_is_one_moment(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2])])
    with connect(str(config.root)) as db:
        record([make_call("b", [1], [2])], writer="other")
        compact(config)
        assert db.sql("SELECT call_id FROM calls").fetchall() == [("a",)]
    assert ask(config, "SELECT call_id FROM calls ORDER BY 1") == [("a",), ("b",)]


def test_a_connection_that_is_collected_inside_a_transaction_is_released_when_that_has_ended(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record([make_call("a", [1], [2])])
    catalog = Catalog.open(config)
    cycle: list[Any] = [connect(config)]
    cycle.append(cycle)
    with catalog.writing().begin():
        del cycle
        gc.collect()
    while deletable(catalog, 0).readers:
        pass
    catalog.close()


def test_processes_write_their_own_logs_and_are_read_together(config: StoreConfig) -> None:
    start = PROCESSES.Barrier(3)
    writers = [started(write_fifty, config, f"p{i}", start) for i in range(3)]
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert ask(config, "SELECT session_id, count(*) FROM calls GROUP BY 1 ORDER BY 1") == [
        ("p0", 50),
        ("p1", 50),
        ("p2", 50),
    ]


def test_status_counts_the_frames_behind_a_bad_one_and_says_how_recording_goes_in_living_proxies(
    config: StoreConfig, record: Any, make_call: Any
) -> None:
    record([make_call(name, [1], [2]) for name in "abcd"])
    [path] = config.log_dir.glob("*/*.sealed.wal")
    content = bytearray(path.read_bytes())
    content[content.index(b"answer of b")] ^= 1
    path.write_bytes(content)
    for _ in range(2):
        status = store_status(config)
        assert (status.calls, status.frames_dropped) == (1, 3)
        compact(config)
    assert status.behind_s is None
    catalog = Catalog.open(config)
    recording = Recording(failed=3, unrecorded=2, waiting=1, failure="the disk is full")
    seen_proxy(catalog, "p", url="http://here", writer="w", recording=recording)
    catalog.close()
    said = CliRunner().invoke(app, ["store", "status", "--root", str(config.root)]).output
    assert "dropped     3 frames" in said
    assert "http://here (w): 3 records not taken, 2 answers unrecorded, 1 records waiting" in said
    assert "the disk is full" in said


def test_status_counts_and_names_what_is_damaged(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2]), make_call("b", [1], [2])])
    compact(config)
    record([make_call("c", [1], [2])], writer="other")
    [path] = (config.log_dir / "other").glob("*.sealed.wal")
    path.write_bytes(path.read_bytes() + b"torn")
    status = store_status(config)
    assert (status.stored_calls, status.hot_calls, status.calls, status.files) == (2, 1, 3, 1)
    assert (status.sealed_segments, status.open_segments, status.compacted_segments) == (1, 0, 1)
    assert (status.bytes_dropped, status.frames_dropped) == (4, 1)
    assert status.behind_s is not None and status.behind_s >= 0
    [(segment, reason)] = status.damaged
    assert segment == "other/00000001" and "ends inside the frame" in reason
    compact(config)
    after = store_status(config)
    assert (after.calls, after.bytes_dropped, after.damaged) == (3, 4, status.damaged)


def test_a_segment_sealed_between_listing_and_reading_is_read(config: StoreConfig, record: Any, make_call: Any) -> None:
    record([make_call("a", [1], [2])], seal=False)
    listed = list_segments(config.log_dir)
    assert not listed[0].sealed
    compact(config.model_copy(update={"segment_grace_s": 60.0}), seal_open=True)
    records, unread = records_of({segment: segment.read() for segment in listed})
    assert ([record.call_id for record in records], unread) == (["a"], [])


def test_ids_that_json_cannot_hold_whole_survive(config: StoreConfig, record: Any, make_call: Any) -> None:
    extreme = [0, 2**31 - 1, -1]
    record([make_call("a", extreme, [5], finish_matched=7, sampling={"temperature": 1.0}, agent_ids={"user": "x"})])
    compact(config)
    [call] = load_calls(config, ["s"])["s"]
    assert pack_ids(call.prompt_ids) == pack_ids(extreme)
    [(sampling, agent_ids, matched)] = ask(config, "SELECT sampling, agent_ids, finish_matched FROM calls")
    assert (json.loads(sampling), json.loads(agent_ids), matched) == ({"temperature": 1.0}, {"user": "x"}, "7")


def test_paths_with_quotes_are_read(config: StoreConfig, make_call: Any, tmp_path: Path) -> None:
    odd = config.model_copy(update={"root": tmp_path / "it's a store"})
    log = LogWriter(odd.root, "proxy", odd)
    log.append(make_call("a", [1], [2])).result(120)
    log.close()
    compact(odd)
    assert ask(odd, "SELECT call_id FROM calls") == [("a",)]
