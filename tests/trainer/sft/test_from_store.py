"""Recorded answers as supervised data: what is chosen, what is counted, and rows of exact ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support_rounds import add_sessions, make_record
from support_sft import TOKENIZER, renderer
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.records.call_record import CallRecord, FinishReason
from weir.trainer.data.dataset import Recorded, read_data
from weir.trainer.data.recorded_rows import model_digest
from weir.trainer.data.rows import RowMaker
from weir.trainer.errors import TrainerUsageError
from weir.trainer.sft.from_store import Reason, Wanted, choose_from_store

QUERY = "SELECT call_id, max(value) AS reward FROM rewards WHERE call_id IS NOT NULL GROUP BY 1 ORDER BY 1"
PROMPT = TOKENIZER.encode("write it")


def record(name: str, group_id: str, answer: str, **more: Any) -> CallRecord:
    output = TOKENIZER.encode(answer)
    given = {"text": answer} | more
    return make_record(f"call-{name}", f"s-{name}", group_id, PROMPT, output, np.zeros(len(output)), **given)


def add(store: StoreConfig, group_id: str, answers: dict[str, tuple[str, float]], **more: Any) -> None:
    """One session of one call for each answer, with its reward."""
    add_sessions(store, group_id, [[record(name, group_id, text, **more)] for name, (text, _) in answers.items()])
    reward(store, {name: value for name, (_, value) in answers.items()})


def reward(store: StoreConfig, values: dict[str, float]) -> None:
    catalog = Catalog.open(store)
    catalog.add_rewards(
        [
            RewardRow(
                session_id=f"s-{name}",
                call_id=f"call-{name}",
                name="r",
                value=value,
                source="test",
                idempotency_key=name,
            )
            for name, value in values.items()
        ]
    )
    catalog.close()


@pytest.fixture
def digest(tiny_model_dir: Path) -> str:
    found = model_digest(tiny_model_dir)
    assert found is not None
    return found


def names(lines: list[dict[str, Any]]) -> list[str]:
    return [line["call_id"].removeprefix("call-") for line in lines]


def test_the_best_of_each_task_is_kept_and_ties_go_to_the_shorter_then_the_earlier(store: StoreConfig) -> None:
    add(store, "g1", {"a": ("good but long answer", 1.0), "b": ("good", 1.0), "c": ("bad", 0.2)})
    add(store, "g2", {"d": ("poor", 0.1), "e": ("none", 0.0)})
    chosen = choose_from_store(store, QUERY, Wanted())
    assert names(chosen.lines) == ["b", "d"]
    assert (chosen.num_tasks, chosen.left_out) == (2, {Reason.NOT_BEST: 3})
    assert names(choose_from_store(store, QUERY, Wanted(best=2)).lines) == ["b", "a", "d", "e"]
    rejected = choose_from_store(store, QUERY, Wanted(best=None, min_reward=0.2))
    assert names(rejected.lines) == ["b", "a", "c"]
    assert rejected.left_out == {Reason.BELOW: 2}
    by_task = choose_from_store(store, f"SELECT *, 'one' AS task FROM ({QUERY})", Wanted())
    assert (names(by_task.lines), by_task.lines[0]["task"]) == (["b"], "one")


def test_equal_answers_count_once_and_unusable_ones_under_their_reason(store: StoreConfig) -> None:
    add(store, "g1", {"a": ("same", 1.0), "b": ("same", 1.0), "c": ("other", 0.5)})
    add(store, "g2", {"d": ("cut off", 1.0)}, finish=FinishReason.LENGTH)
    chosen = choose_from_store(store, QUERY, Wanted(best=None))
    assert names(chosen.lines) == ["a", "c"]
    assert chosen.left_out == {Reason.DUPLICATE: 1, Reason.UNFINISHED: 1}
    unrewarded = choose_from_store(store, "SELECT call_id, NULL::DOUBLE AS reward FROM calls", Wanted())
    assert (unrewarded.lines, unrewarded.left_out[Reason.UNREWARDED]) == ([], 3)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nonsense", "the query failed"),
        ("SELECT call_id FROM calls", "gives the columns call_id; needed are call_id and reward"),
        ("SELECT call_id, 1.0 AS reward FROM calls WHERE false", "names no call"),
        ("SELECT 'x' AS call_id, 1.0 AS reward", "names call x, which the store does not have"),
        ("SELECT call_id, 1.0 AS reward FROM calls, range(2)", "call-a twice"),
        ("SELECT NULL AS call_id, 1.0 AS reward FROM calls", "a row without call_id"),
    ],
)
def test_a_query_that_names_nothing_usable_is_refused(store: StoreConfig, query: str, message: str) -> None:
    add(store, "g1", {"a": ("good", 1.0)})
    with pytest.raises(TrainerUsageError, match=message):
        choose_from_store(store, query, Wanted())


def two_turns(store: StoreConfig, digest: str) -> list[int]:
    """A session of two calls, the second on the exact ids of the first; its whole ids."""
    first, again, second = (TOKENIZER.encode(text) for text in ("x = 1", "wrong, again", "x = 2"))
    prompt = [*PROMPT, *first, *again]
    messages = [
        {"role": "user", "content": "write it"},
        {"role": "assistant", "content": "x = 1"},
        {"role": "user", "content": "wrong, again"},
    ]
    more: dict[str, Any] = {"tokenizer": digest, "text": "x = 2", "started_us": 3_000_000, "finished_us": 4_000_000}
    calls = [
        make_record("call-1", "s-1", "g1", PROMPT, first, np.zeros(len(first)), text="x = 1", tokenizer=digest),
        make_record(
            *("call-2", "s-1", "g1", prompt, second, np.zeros(len(second))),
            request=json.dumps({"messages": messages}).encode(),
            **more,
        ),
    ]
    add_sessions(store, "g1", [calls])
    return [*prompt, *second]


def test_lines_with_recorded_ids_are_trained_on_as_they_are(
    store: StoreConfig, tiny_model_dir: Path, tmp_path: Path, digest: str
) -> None:
    ids = two_turns(store, digest)
    out = tmp_path / "best.jsonl"
    query = "SELECT call_id, 1.0 AS reward FROM calls WHERE call_id = 'call-2'"
    command = ["sft-data", str(out), "--root", str(store.folder), "--from-store", query]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.output.splitlines() == [f"{out}: 1 conversations of 1 tasks, 1 with recorded ids"]
    (line,) = read_data(out)
    assert isinstance(line, Recorded)
    maker = RowMaker(tiny_model_dir, renderer, 4096)
    (row,) = maker.rows(line)
    assert row.ids.tolist() == ids
    spans = [TOKENIZER.decode(row.ids[start:end].tolist()) for start, end in line.targets]
    assert spans == ["x = 1", "x = 2"]
    assert row.num_targets == sum(end - start for start, end in line.targets)
    assert (maker.num_exact, maker.num_rendered_again) == (1, 0)
    last = choose_from_store(store, query, Wanted(last_turn_only=True)).lines[0]
    assert last["targets"] == [list(line.targets[1])]
    assert [message.get("weight") for message in last["messages"]] == [None, 0, None, None]


def test_ids_of_another_vocabulary_are_rendered_from_the_messages_and_counted(
    store: StoreConfig, tiny_model_dir: Path, tmp_path: Path
) -> None:
    two_turns(store, "0123456789abcdef")
    query = "SELECT call_id, 1.0 AS reward FROM calls WHERE call_id = 'call-2'"
    (found,) = choose_from_store(store, query, Wanted()).lines
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps(found) + "\n")
    maker = RowMaker(tiny_model_dir, lambda: renderer(enable_thinking=False), 4096)
    (row,) = maker.rows(read_data(file)[0])
    assert TOKENIZER.decode(row.ids.tolist()).startswith("<|im_start|>user\nwrite it<|im_end|>")
    assert (maker.num_exact, maker.num_rendered_again) == (0, 1)
    del found["messages"]
    file.write_text(json.dumps(found) + "\n")
    with pytest.raises(TrainerUsageError, match=r"line 1 has ids of the vocabulary 0123456789abcdef and no messages"):
        maker.rows(read_data(file)[0])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tokenizer": ""}, "ids without tokenizer"),
        ({"targets": []}, "no runs"),
        ({"targets": [[0, 2]]}, "no runs"),
        ({"targets": [[2, 9]]}, "no runs"),
        ({"ids": [1, -2, 3]}, "the token -2"),
    ],
)
def test_a_line_whose_ids_make_no_row_is_refused(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    file = tmp_path / "data.jsonl"
    line = {"ids": [1, 2, 3], "targets": [[1, 3]], "tokenizer": "0123456789abcdef"}
    file.write_text(json.dumps(line | more) + "\n")
    with pytest.raises(TrainerUsageError, match=f"line 1: .*{message}"):
        read_data(file)
