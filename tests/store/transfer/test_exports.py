"""`weir export`: the contents of the files, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.maintenance.compact import compact
from weir.store.records.call_record import CaptureLevel, FinishReason


def weir(*words: str | Path) -> tuple[int, str]:
    """Exit status and output of a command, or the text of its error."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exit_code and done.exception is not None and not isinstance(done.exception, SystemExit):
        return getattr(done.exception, "exit_code", -1), str(done.exception)
    return done.exit_code, done.stdout + done.stderr


@pytest.fixture
def filled(config: StoreConfig, record: Any, make_call: Any) -> StoreConfig:
    """Session s with a fork and rewards; t neither registered nor rewarded; u with texts and no tokens."""
    catalog = Catalog.open(config)
    catalog.register_session("s", "g", task={"task_id": "add"}, group_size=2, metadata={"k": 1}, key_hash=None)
    catalog.add_rewards(
        [RewardRow(session_id="s", call_id=None, name="final", value=0.5, source="judge", idempotency_key="1")]
    )
    catalog.add_rewards(
        [RewardRow(session_id="s", call_id="b", name="step", value=0.25, source="judge", idempotency_key="2")]
    )
    catalog.finish_session("s", status="done", info={"why": "ended"})
    catalog.close()
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    asked = {"request": json.dumps(body).encode(), "sampling": {"temperature": 0.5}}
    record([make_call("a", [1, 2], [3], at=10_000, versions=[(1, "4")], **asked)], writer="one")
    compact(config)
    record(
        [
            make_call("b", [1, 2, 3, 9], [4, 5], at=30_000, versions=[(1, "4"), (1, "5")]),
            make_call("c", [1, 2, 3, 8, 8], [6, 7], at=50_000, versions=[(2, "5")], finish=FinishReason.LENGTH),
            make_call("d", [50], [51], session_id="t", group_id="h", at=10_000, versions=[(1, "4")]),
            make_call("e", [], [], session_id="u", group_id="h", at=20_000, level=CaptureLevel.TEXT),
        ],
        writer="two",
    )
    return config


def exported(store: StoreConfig, path: Path, form: str, *more: str) -> str:
    """Export to a file; returns the command's output."""
    status, said = weir("export", "--root", store.root, "--format", form, "--output", path, *more)
    assert status == 0, said
    return said


def test_json_lines_hold_branches_with_masks_calls_rewards_and_provenance(filled: StoreConfig, tmp_path: Path) -> None:
    said = exported(filled, tmp_path / "out.jsonl", "jsonl", "--policy", "last")
    assert said == f"wrote 3 trajectories to {tmp_path}/out.jsonl; left out 1 without recorded tokens\n"
    head, b, c, d = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    told = head["weir_export"]
    assert (told["form"], told["policy"], told["where"], told["trajectories"]) == (1, "last", "true", 3)
    assert (b["leaf_call"], b["group_id"], b["task"], b["reward"]) == ("b", "g", {"task_id": "add"}, 0.5)
    assert (b["prompt_ids"], b["completion_ids"]) == ([1, 2], [3, 9, 4, 5])
    assert b["completion_mask"] == [0, 0, 1, 1] and c["completion_mask"] == [1, 0, 0, 1, 1]
    assert b["completion_logprobs"] == [-0.5, None, -0.5, -1.0]
    assert b["completion_versions"] == [4, None, 4, 5]
    assert [(one["call_id"], one["start"], one["output_start"], one["end"]) for one in b["calls"]] == [
        ("a", 0, 2, 3),
        ("b", 3, 4, 6),
    ]
    assert b["calls"][0]["request"]["messages"][1]["content"] == "Hi"
    assert [(r["name"], r["call_id"], r["value"]) for r in b["rewards"]] == [("final", None, 0.5), ("step", "b", 0.25)]
    assert (d["reward"], d["rewards"], d["status"]) == (None, [], None)


def test_parquet_holds_the_same_rows(filled: StoreConfig, tmp_path: Path) -> None:
    exported(filled, tmp_path / "out.jsonl", "jsonl")
    exported(filled, tmp_path / "out.parquet", "parquet")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "out.parquet")
    assert json.loads(table.schema.metadata[b"weir_export"])["format"] == "parquet"
    rows = table.to_pylist()
    same = ("leaf_call", "reward", "prompt_ids", "completion_ids", "completion_mask", "completion_versions", "rewards")
    assert [{name: row[name] for name in same} for row in rows] == [
        {name: line[name] for name in same} for line in lines[1:]
    ]
    assert json.loads(rows[0]["calls"][0]["request"]) == lines[1]["calls"][0]["request"]
    assert json.loads(rows[0]["task"]) == {"task_id": "add"}


def test_trainers_get_their_own_columns_and_no_branch_without_a_reward(filled: StoreConfig, tmp_path: Path) -> None:
    said = exported(filled, tmp_path / "trl.parquet", "trl", "--policy", "first")
    assert said.endswith("left out 1 without recorded tokens; left out 1 without a reward\n")
    b, c = pq.read_table(tmp_path / "trl.parquet").to_pylist()
    assert b["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (b["prompt_ids"], b["completion_ids"], b["env_mask"]) == ([1, 2], [3, 9, 4, 5], [1, 0, 1, 1])
    assert (b["logprobs"], b["reward"]) == ([-0.5, 0.0, -0.5, -1.0], 0.5)
    assert (c["env_mask"], c["version_max"]) == ([0, 0, 0, 1, 1], 5)
    exported(filled, tmp_path / "verl.parquet", "verl")
    b = pq.read_table(tmp_path / "verl.parquet").to_pylist()[0]
    assert (b["uid"], b["data_source"], b["prompts"], b["responses"]) == ("g", "add", [1, 2], [3, 9, 4, 5])
    assert (b["response_mask"], b["rm_scores"]) == ([0, 0, 1, 1], [0, 0, 0, 0.5])
    assert b["extra_info"]["leaf_call"] == "b"


# The fields of slime's Sample (slime/utils/types.py, 2026) that its own to_dict gives and a finished rollout has.
SLIME_FIELDS = {
    *("group_index", "index", "prompt", "tokens", "response", "response_length", "label", "reward", "loss_mask"),
    *("weight_versions", "rollout_log_probs", "status", "metadata", "session_id"),
}


def test_slime_gets_a_dump_of_samples(filled: StoreConfig, tmp_path: Path) -> None:
    exported(filled, tmp_path / "0.pt", "slime")
    dump = torch.load(tmp_path / "0.pt", weights_only=False)
    b, c = dump["samples"]
    assert set(b) == SLIME_FIELDS and dump["rollout_id"] == 0
    assert (b["tokens"], b["response_length"], b["loss_mask"]) == ([1, 2, 3, 9, 4, 5], 4, [0, 0, 1, 1])
    assert len(b["rollout_log_probs"]) == 4 and b["weight_versions"] == ["4", "5"]
    assert (b["status"], c["status"], b["group_index"], c["index"]) == ("completed", "truncated", 0, 1)
    assert (b["response"], b["reward"]) == ("answer of b", 0.5)
    assert dump["weir_export"]["format"] == "slime"


def test_a_condition_in_sql_chooses_what_is_written(filled: StoreConfig, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    where = "reward > $low AND list_contains(['b', 'd'], leaf_call)"
    assert exported(filled, path, "jsonl", "--where", where, "--param", "low=0.1").startswith("wrote 1 ")
    head, b = path.read_text().splitlines()
    assert json.loads(head)["weir_export"]["parameters"] == {"low": 0.1}
    assert json.loads(b)["leaf_call"] == "b"
    status, said = weir("export", "--root", filled.root, "-o", path, "--where", "colour = 1")
    assert status == 2 and 'column "colour" not found' in said
    status, said = weir(
        "export", "--root", filled.root, "-o", path, "--where", "true); DROP TABLE stored.hot; SELECT (1"
    )
    assert status == 2 and "give one SELECT" in said
    assert len(path.read_text().splitlines()) == 2  # a failed export leaves the file as it was


@pytest.mark.parametrize("form", ["jsonl", "parquet", "trl", "verl", "slime"])
def test_a_place_that_cannot_be_written_is_named(filled: StoreConfig, tmp_path: Path, form: str) -> None:
    path = tmp_path / "missing" / "out"
    status, said = weir("export", "--root", filled.root, "--format", form, "--output", path)
    assert (status, said) == (
        1,
        f"cannot write {path}: No such file or directory; name another place, or free some space",
    )
