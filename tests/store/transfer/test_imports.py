"""`weir import`: exports of Weir and of others, and refusals before anything is stored."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
from support_processes import ended
from support_store_processes import import_and_die
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.log.segment_format import list_segments
from weir.store.maintenance.compact import compact
from weir.store.reader import connect, load_calls
from weir.store.records.call_record import FinishReason, VersionSpan
from weir.store.transfer.import_file import import_jsonl

GOOD: dict[str, Any] = {
    "prompt_ids": [1],
    "completion_ids": [2, 3],
    "completion_mask": [1, 1],
    "completion_logprobs": [-0.1, -0.2],
    "completion_versions": [1, 1],
}


def weir(*words: str | Path) -> tuple[int, str]:
    """Exit status and output of a command, or the text of its error."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exit_code and done.exception is not None and not isinstance(done.exception, SystemExit):
        return getattr(done.exception, "exit_code", -1), str(done.exception)
    return done.exit_code, done.stdout + done.stderr


def exported(store: StoreConfig, path: Path, *more: str) -> list[str]:
    """The lines of an export, without its provenance."""
    status, said = weir("export", "--root", store.root, "--output", path, *more)
    assert status == 0, said
    return path.read_text().splitlines()[1:]


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def own_line(**changes: Any) -> dict[str, Any]:
    """A line of one call in the form of an export; `changes` are for the call."""
    call = {"call_id": "c", "session_id": "s", "start": 0, "output_start": 1, "end": 3, "finish": "stop"}
    return GOOD | {"session_id": "s", "group_id": "g", "calls": [call | changes]}


def kept(store: StoreConfig) -> tuple[int, int, int]:
    """The numbers of calls, registered sessions and rewards in a store."""
    with connect(store) as db:
        query = """SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM stored.sessions),
            (SELECT count(*) FROM rewards)"""
        return db.sql(query).fetchall()[0]


@pytest.fixture
def filled(config: StoreConfig, record: Any, make_call: Any) -> StoreConfig:
    """Group g of two ended sessions: s with a fork and an answer without tokens, and t, evaluated, with plain-text
    bodies.
    """
    catalog = Catalog.open(config)
    for session, status in (("s", "done"), ("t", "failed")):
        given: dict[str, Any] = {
            "task": {"task_id": "add"},
            "group_size": 2,
            "metadata": {"k": "ü\0"},
            "key_hash": None,
        }
        catalog.register_session(session, "g", **given)
        catalog.finish_session(session, status=status, info={"why": "ended"})
    for key, value in (("z", 0.25), ("a", 0.5)):  # the latest counts, not the last by name
        catalog.add_rewards(
            [RewardRow(session_id="s", call_id=None, name="final", value=value, source="judge", idempotency_key=key)]
        )
    catalog.add_rewards(
        [RewardRow(session_id="t", call_id=None, name="reward", value=0.75, source="import", idempotency_key="import")]
    )
    catalog.close()
    asked = {"request": json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()}
    sampling = {"sampling": {"temperature": 0.1, "seed": 2**53 + 1}}
    record([make_call("a", [1, 2], [3], at=10_000, versions=[(1, "4")], **asked, **sampling)], writer="one")
    compact(config)
    record(
        [
            make_call("b", [1, 2, 3, 9], [], at=30_000, versions=[], finish=FinishReason.ABORT, answer=b""),
            make_call("c", [1, 2, 3, 9, 8], [6, 7], at=50_000, versions=[(2, "5")], forced=1),
            make_call("e", [1, 2, 3, 7], [5], at=60_000, versions=[(1, "5")], agent_ids={"user": "me"}),
            make_call("d", [50], [51], session_id="t", at=10_000, versions=[(1, "default")], request=b"{"),
        ],
        writer="two",
    )
    return config


@pytest.mark.parametrize("policy", ["longest", "every"])
def test_what_was_exported_can_be_imported_and_exports_the_same_bytes(
    filled: StoreConfig, tmp_path: Path, policy: str
) -> None:
    one = exported(filled, tmp_path / "one.jsonl", "--policy", policy)
    assert len(one) == 3
    other = StoreConfig(root=tmp_path / "other", segment_grace_s=0)
    for known in ("", "; 5 of these calls were there already"):  # a second time changes nothing
        status, said = weir("import", tmp_path / "one.jsonl", "--root", other.root)
        assert (status, said) == (0, f"imported 3 trajectories: 5 calls of 2 sessions in 1 groups{known}\n")
        assert len(list_segments(other.log_dir)) <= 1
        compact(other)
    assert exported(other, tmp_path / "two.jsonl", "--policy", policy) == one
    with connect(other) as db:
        assert db.sql("SELECT DISTINCT agent_ids ->> '$.imported_from' FROM calls").fetchall() == [("one.jsonl",)]
    before, after = (load_calls(store, ["s"])["s"] for store in (filled, other))
    assert [call.call_id for call in after] == ["a", "b", "c", "e"]
    for old, new in zip(before, after, strict=True):
        assert (new.parent_call, new.sampling, new.finish) == (old.parent_call, old.sampling, old.finish)
        for name in ("prompt_ids", "output_ids", "output_logprobs", "versions"):
            assert getattr(new, name).tolist() == getattr(old, name).tolist()


def test_trajectories_of_others_need_ids_mask_and_logprobs_only(tmp_path: Path) -> None:
    line = {
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4, 9, 5],
        "completion_mask": [1, 1, 0, 1],
        "completion_logprobs": [-0.1, -0.2, None, -0.3],
        "reward": 1.0,
        "messages": [
            {"role": "user", "content": "add"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "again"},
            {"role": "assistant", "content": "3"},
        ],
    }
    path, store = tmp_path / "theirs.jsonl", StoreConfig(root=tmp_path / "store")
    path.write_text(json.dumps(line) + "\n" + json.dumps(line | {"reward": 0.0}) + "\n")
    status, said = weir("import", path, "--root", store.root, "--weight-version", "7")
    assert (status, said) == (0, "imported 2 trajectories: 4 calls of 2 sessions in 1 groups\n")
    with connect(store) as db:
        assert db.sql("SELECT num_finished, size, finished, reward_mean FROM groups").fetchall() == [(2, 2, True, 0.5)]
        calls = db.sql("SELECT depth, text, output_ids, version_max FROM calls ORDER BY depth LIMIT 3").fetchall()
        (session_id,) = db.sql("SELECT session_id FROM sessions WHERE reward = 1").fetchall()[0]
    assert calls == [(0, "2", [3, 4], 7), (0, "2", [3, 4], 7), (1, "3", [5], 7)]
    first, second = load_calls(store, [session_id])[session_id]
    assert second.parent_call == first.call_id and second.prompt_ids.tolist() == [1, 2, 3, 4, 9]
    assert [message["content"] for message in second.messages] == ["add", "2", "again"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"completion_mask": [1]}, "completion_mask has 1 items, completion_ids 2"),
        ({"completion_mask": [0, 0]}, "nothing was sampled"),
        ({"completion_logprobs": [-0.1, None]}, "token 2 was sampled and its logprob is None"),
        ({"completion_logprobs": [-0.1, math.inf]}, "malformed"),
        ({"completion_logprobs": [0.9, 0.8]}, "the logprob of token 1 is 0.9"),
        ({"completion_mask": [2, 1]}, "completion_mask"),
        ({"completion_ids": [2, 2**31]}, "$.completion_ids[1]"),
        ({"completion_ids": [2, -1]}, "$.completion_ids[1]"),
        ({"completion_versions": [2**40, 1]}, "$.completion_versions[0]"),
        ({"group_size": 0}, "$.group_size"),
        ({"session_id": "a\0b"}, "$.session_id"),
        ({"rewrd": 1}, "unknown field `rewrd`"),
        ({"weir_export": 5}, "unknown field `weir_export`"),
        ({"completion_versions": None}, "which weights sampled tokens 1:3"),
        ({"messages": [{"role": "user", "content": "x"}]}, "1 runs of sampled tokens, and 0 messages of an assistant"),
        (own_line(start=1), "call c has tokens 1:3"),
        (own_line(end=9), "call c has tokens 0:9"),
        (own_line(end=2), "the calls end at token 2, the sequence at 3"),
        (own_line(answer="text"), "$.calls[0].answer"),
        (own_line(details={"colour": 1}), "unknown field `colour`"),
        (own_line(details={"level": "text"}), "$.calls[0].details.level"),
        (own_line(details={"spans": [[0, 1, "1"]]}), "version spans end at 1, the output has 2 tokens"),
    ],
)
def test_a_line_that_cannot_be_kept_is_named_and_nothing_of_the_file_is(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = written(tmp_path / "theirs.jsonl", GOOD, GOOD | change)
    status, said = weir("import", path, "--root", tmp_path / "store")
    assert status == 2 and said.startswith(f"{path}:2: ") and message in said
    assert not (tmp_path / "store").exists()


S = {"session_id": "s", "group_id": "g"}


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (S, {"session_id": "s", "group_id": "h"}, "session s has another group_id"),
        (S | {"metadata": {"a": 1}}, S | {"metadata": {"a": 2}}, "session s has another metadata"),
        (S | {"reward": 0.5}, S | {"reward": 1.0}, "session s has another rewards"),
        (S | {"task": {"a": 1}}, {"group_id": "g", "task": {"a": 2}}, "the task of group g has another value"),
        (S | {"group_size": 1}, {"group_id": "g", "group_size": 2}, "the size of group g has another value"),
        (own_line(), own_line() | {"completion_ids": [8, 9]}, "call c has another end_hash"),
        (own_line(), own_line() | {"completion_logprobs": [-1, -1]}, "call c has another logprobs_hash"),
    ],
)
def test_lines_that_contradict_each_other_are_named_and_nothing_of_the_file_is_kept(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], message: str
) -> None:
    path = written(tmp_path / "theirs.jsonl", GOOD | one, GOOD | {"prompt_ids": [1]} | other)
    status, said = weir("import", path, "--root", tmp_path / "store")
    assert status == 2 and said.startswith(f"{path}:2: {message} than at {path}:1")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            own_line() | {"group_size": 2, "metadata": {"a": 1}},
            "cannot import session s: it is already registered with another metadata",
        ),
        (own_line() | {"group_size": 9}, "cannot register a session in group g: its group_size is 9, not 2"),
        (own_line() | {"completion_ids": [8, 9]}, "call c is in the store with other tokens, logprobs"),
    ],
)
def test_what_the_store_has_otherwise_is_refused_and_nothing_of_the_file_is_kept(
    tmp_path: Path, there: dict[str, Any], said: str
) -> None:
    store = StoreConfig(root=tmp_path / "store", segment_grace_s=0)
    import_jsonl(store, written(tmp_path / "first.jsonl", there))
    compact(store)
    before = kept(store)
    path = written(tmp_path / "second.jsonl", GOOD | {"group_id": "new"}, own_line() | {"group_size": 2})
    status, message = weir("import", path, "--root", store.root)
    assert status == 2 and said in message
    assert kept(store) == before


def test_equal_answers_are_samples_of_their_own(tmp_path: Path) -> None:
    path = written(tmp_path / "theirs.jsonl", GOOD, GOOD, GOOD)
    store = StoreConfig(root=tmp_path / "store")
    for _ in range(2):
        import_jsonl(store, path)
    with connect(store) as db:
        assert db.sql("SELECT size, num_sessions, num_calls, finished FROM groups").fetchall() == [(3, 3, 3, True)]


def test_a_killed_import_leaves_no_session_and_is_run_again(tmp_path: Path) -> None:
    lines = [GOOD | {"prompt_ids": [i], "session_id": f"s{i}", "group_id": "g", "reward": 1.0} for i in range(20)]
    path, exit_codes = written(tmp_path / "theirs.jsonl", *lines), []
    while 0 not in exit_codes:
        store = StoreConfig(root=tmp_path / f"store-{len(exit_codes)}")
        exit_codes.append(ended(import_and_die, store, path, len(exit_codes) + 1))
        calls, sessions, rewards = kept(store)
        assert (calls in (0, 20), sessions, rewards) == (True, 0, 0) or exit_codes[-1] == 0
        import_jsonl(store, path)
        assert kept(store) == (20, 20, 20)
    assert exit_codes[:-1] == [-signal.SIGKILL] * (len(exit_codes) - 1) and len(exit_codes) > 3


def test_a_version_that_is_no_int32_is_no_number() -> None:
    assert [VersionSpan(0, 1, label).version for label in ("7", str(2**31 - 1), str(2**31), "v7")] == [
        7,
        2**31 - 1,
        None,
        None,
    ]


def test_a_table_is_refused_with_the_form_that_is_read(filled: StoreConfig, tmp_path: Path) -> None:
    table = tmp_path / "one.parquet"
    assert weir("export", "--root", filled.root, "--format", "parquet", "--output", table)[0] == 0
    status, said = weir("import", table, "--root", tmp_path / "other")
    assert status == 2 and said.startswith(f"{table} is Parquet, and only JSON Lines are imported: ")
    assert not (tmp_path / "other").exists()


def test_a_later_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    path.write_text(json.dumps({"weir_export": {"form": 2}}) + "\n")
    status, said = weir("import", path, "--root", tmp_path / "store")
    assert status == 1 and "has form 2, this Weir reads up to 1" in said
