"""Pairs in KernelBook's form become conversations that the judge finds right, and every other pair has its reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support_kernelbook import rows
from typer.testing import CliRunner

from weir.agents.errors import TaskError
from weir.agents.inductor_text import written_out
from weir.agents.kernelbook import NotAPair, Row, pair_of, read_rows
from weir.agents.mistakes import mistakes
from weir.scripts.cli.main import app
from weir.trainer.data.dataset import read_data

ROWS = [msgspec.convert(row, Row) for row in rows()]


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", '{"port": 0}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[2]
        server.terminate()


@pytest.fixture
def config(judge_url: str, tmp_path: Path) -> Path:
    file = tmp_path / "weir.toml"
    file.write_text(f'[kernel_eval]\nurl = "{judge_url}"\n')
    return file


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "kernelbook.parquet"
    pq.write_table(pa.Table.from_pylist(rows()), file)
    return file


def sft_data(*arguments: Any) -> str:
    result = CliRunner().invoke(app, ["sft-data", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_right_pairs_are_kept_and_every_other_has_its_reason(pairs: Path, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "chat.jsonl"
    printed = sft_data(pairs, out, "--config", config)
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["pair_id"] for row in kept] == ["1", "2", "7"]
    assert kept[0]["origin"] == {"repo_name": "somebody/something", "licenses": ["MIT"], "entry_point": "Rectifier"}
    assert all([message["role"] for message in row["messages"]] == ["user", "assistant"] for row in kept)
    dropped = [json.loads(line) for line in (tmp_path / "chat.dropped.jsonl").read_text().splitlines()]
    assert [(row["pair_id"], row["reason"], row["detail"]) for row in dropped] == [
        ("3", "duplicate", ""),
        ("4", "wrong", "output_mismatch"),
        ("5", "not_a_pair", ""),
        ("6", "task_not_judgeable", "all_zero"),
        ("8", "wrong", "reward_hack"),
    ]
    assert printed.startswith("3 of 8 pairs kept") and "may be slower" in printed
    assert len(read_data(out)) == 3
    assert not out.with_name("chat.jsonl.part").exists()


def test_two_turns_begin_with_a_mistake_and_what_the_judge_said_of_it(
    pairs: Path, config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "chat.jsonl"
    sft_data(pairs, out, "--turns", 2, "--config", config)
    for line in out.read_text().splitlines():
        asked, wrong, said, right = json.loads(line)["messages"]
        assert "class Model(" in asked["content"] and "class ModelNew(" in right["content"]
        assert wrong["role"] == "assistant" and wrong["content"] != right["content"]
        assert said["role"] == "user" and not said["content"].startswith("Correct")


def test_a_run_that_was_stopped_goes_on_and_gives_the_same(pairs: Path, config: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "chat.jsonl"
    sft_data(pairs, whole, "--config", config)
    head = {"pairs": str(pairs), "num_turns": 1, "max_tokens": None, "relax_rules": [], "num_trials": 3}
    head |= {"feedback_lines": 16, "seed": 0, "at_once": 16}
    known = {"number": 0, "kept": {**json.loads(whole.read_text().splitlines()[0]), "pair_id": "from the journal"}}
    lines = [*map(msgspec.json.encode, (head, known)), b'{"number": 1, "ke']
    out.with_name("chat.jsonl.part").write_bytes(b"\n".join(lines))
    sft_data(pairs, out, "--config", config)
    found, expected = ([json.loads(line) for line in file.read_text().splitlines()] for file in (out, whole))
    assert found == [{**expected[0], "pair_id": "from the journal"}, *expected[1:]]


def test_a_run_that_is_killed_again_and_again_gives_the_same(pairs: Path, config: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "chat.jsonl"
    sft_data(pairs, whole, "--turns", 2, "--config", config)
    journal = out.with_name("chat.jsonl.part")
    command = [
        sys.executable,
        "-m",
        "weir.scripts.cli.main",
        "sft-data",
        pairs,
        out,
        "--turns",
        "2",
        "--config",
        config,
    ]
    for num_outcomes in (1, 4):
        with subprocess.Popen(command) as process:
            while process.poll() is None and (
                not journal.exists() or journal.read_bytes().count(b"\n") <= num_outcomes
            ):
                os.sched_yield()
            process.kill()
        if out.exists():
            break  # on a machine so busy that the run came to its end before it was killed
    else:
        subprocess.run(command, check=True)
    assert len(out.read_bytes().splitlines()) == 3
    assert out.read_bytes() == whole.read_bytes()
    assert (tmp_path / "chat.dropped.jsonl").read_bytes() == (tmp_path / "whole.dropped.jsonl").read_bytes()


def test_a_journal_of_other_settings_is_refused(pairs: Path, config: Path, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl.part").write_text("{}\n")
    result = CliRunner().invoke(app, ["sft-data", str(pairs), str(tmp_path / "chat.jsonl"), "--config", str(config)])
    assert "was begun with other pairs or settings" in str(result.exception)


def test_what_is_too_long_is_left_out(pairs: Path, config: Path, tmp_path: Path, tiny_model_dir: Path) -> None:
    out = tmp_path / "chat.jsonl"
    sft_data(pairs, out, "--max-tokens", 6000, "--model", tiny_model_dir, "--config", config)
    dropped = [json.loads(line) for line in (tmp_path / "chat.dropped.jsonl").read_text().splitlines()]
    assert [row["pair_id"] for row in dropped if row["reason"] == "too_long"] == ["7"]


def test_arguments_by_name_become_arguments_by_position() -> None:
    assert "return [32, 3.0]" in pair_of("2", ROWS[1]).reference_src


def test_private_names_of_the_compiler_are_written_out() -> None:
    text = written_out(ROWS[0].triton_code)
    assert "torch._" not in text and "triton_helpers" not in text and "get_raw_stream" not in text
    assert written_out(text) == text


def test_mistakes_are_in_one_place_each_and_follow_from_the_seed() -> None:
    source = pair_of("1", ROWS[0]).candidate_src
    found = mistakes(source, 7)
    assert found == mistakes(source, 7) and len(found) >= 3
    for spoiled in found:
        changed = [one for one in zip(source.splitlines(), spoiled.splitlines(), strict=True) if one[0] != one[1]]
        assert len(changed) == 1


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("entry_point", "1x", "not a name"),
        ("python_code", "def f(", "not Python"),
        ("python_code", "import torch", "defines no class"),
        ("triton_code", "x = (", "not Python"),
    ],
)
def test_a_row_without_the_form_says_why(field: str, value: str, why: str) -> None:
    with pytest.raises(NotAPair, match=why):
        pair_of("1", msgspec.structs.replace(ROWS[0], **{field: value}))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_without_the_fields_is_dropped_and_the_others_stay(suffix: str, tmp_path: Path) -> None:
    file, found = tmp_path / f"pairs.{suffix}", rows()[:2]
    found[0] = {**found[0], "triton_code": None}
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(found), file)
    else:
        file.write_text("[]\n" + "\n".join(map(json.dumps, found)))
    told = list(read_rows(tmp_path))
    assert [type(row) for _, row in told][-2:] == [NotAPair, Row]
    assert len(told) == (2 if suffix == "parquet" else 3)


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "pairs.parquet").write_bytes(b"no")
    with pytest.raises(TaskError, match=r"pairs\.parquet cannot be read as Parquet"):
        list(read_rows(tmp_path))


def test_rows_are_read_from_lines_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in ROWS[:2]))
    assert [pair_id for pair_id, _ in read_rows(tmp_path)] == ["1", "2"]
