"""Conversations that renderers would write incompletely, or fail on: each is refused with its file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support_sft import renderer

from weir.trainer.data.dataset import Conversation, read_data
from weir.trainer.data.rows import RowMaker
from weir.trainer.errors import TrainerUsageError

ASKED = {"role": "user", "content": "say x"}
ANSWER = {"role": "assistant", "content": "x"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = [{"type": "image_url", "image_url": {"url": "data:,"}}]

WRONG: list[tuple[list[Any], str]] = [
    ([{"content": "x"}, ANSWER], r"messages\[0\]\.role is None, expected one of system, user, assistant, tool"),
    ([{"role": "alien", "content": "gone"}, ANSWER], r"messages\[0\]\.role is 'alien'"),
    ([{"role": "developer", "content": "gone"}, ANSWER], r"messages\[0\]\.role is 'developer'"),
    ([{"role": ["user"], "content": "x"}, ANSWER], r"messages\[0\]\.role is \['user'\]"),
    ([ANSWER], r"messages\[0\] is the assistant's, and nothing was asked before it"),
    ([{"role": "user", "content": 3}, ANSWER], r"messages\[0\]\.content is a int, expected a string"),
    ([{"role": "user"}, ANSWER], r"messages\[0\]\.content is missing or null"),
    ([{"role": "user", "content": IMAGE}, ANSWER], r"messages\[0\]\.content is a list, expected a string: images"),
    ([ASKED, ANSWER | {"content": None}], r"messages\[1\]\.content is missing or null"),
    ([ASKED, ANSWER | {"reasoning_content": 3}], r"messages\[1\]\.reasoning_content is a int"),
    ([ASKED, ANSWER | {"tool_calls": "f"}], r"messages\[1\]\.tool_calls is a str, expected a list"),
    ([ASKED, ANSWER | {"tool_calls": [{"function": 3}]}], r"messages\[1\]\.tool_calls\[0\] is \{'function': 3\}"),
    ([ASKED, ANSWER | {"tool_calls": [{"function": {"name": "f", "arguments": 3}}]}], "arguments is neither a string"),
    ([ASKED | {"tool_calls": [CALL]}, ANSWER], "is in a message of user, only the assistant calls tools"),
    ([ASKED, ANSWER | {"function_call": {"name": "f"}}], r"messages\[1\]\.function_call is not supported"),
    ([ASKED, ANSWER | {"weight": 0.5}], r"messages\[1\]\.weight is 0\.5, expected 0 or 1"),
    ([ASKED, ANSWER | {"weight": -1}], r"messages\[1\]\.weight is -1"),
    ([ASKED, ANSWER | {"weight": "0"}], r"messages\[1\]\.weight is '0'"),
    ([ASKED, ANSWER | {"weight": None}], r"messages\[1\]\.weight is None"),
    (["x", ANSWER], "Expected `object`, got `str`"),
]


def written(file: Path, *conversations: list[Any]) -> Path:
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in conversations))
    return file


@pytest.mark.parametrize(("messages", "why"), WRONG)
def test_a_conversation_of_another_form_is_refused_with_its_line(messages: list[Any], why: str, tmp_path: Path) -> None:
    file = written(tmp_path / "data.jsonl", [ASKED, ANSWER], messages)
    with pytest.raises(TrainerUsageError, match=f"data.jsonl line 2: .*{why}"):
        read_data(file)


def test_calls_of_tools_thoughts_and_weights_in_either_spelling_are_rows(tmp_path: Path) -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    told = {"role": "tool", "content": "1", "tool_call_id": "a"}
    thinking = ANSWER | {"reasoning_content": "easy"}
    chats = [[ASKED, calling, told, thinking], *([ASKED, ANSWER | {"weight": one}] for one in (1, True, 1.0))]
    left_out = [ASKED, ANSWER | {"weight": False}, ASKED, ANSWER]
    maker = RowMaker(tmp_path, renderer, max_tokens=10_000)
    rows = [maker.rows(line) for line in read_data(written(tmp_path / "data.jsonl", *chats, left_out))]
    assert [len(of_line) for of_line in rows] == [1, 1, 1, 1, 1]
    assert {row.num_targets for of_line in rows[1:] for row in of_line} == {rows[1][0].num_targets}


def test_a_line_that_the_renderer_fails_on_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "data.jsonl", [ASKED, ANSWER])
    (line,) = read_data(file)
    assert isinstance(line, Conversation)
    line.messages[0].pop("role")  # as what a renderer does not take and the check lets through
    with pytest.raises(TrainerUsageError, match=r"data.jsonl line 1 cannot be rendered for this model: KeyError"):
        RowMaker(tmp_path, renderer, max_tokens=100).rows(line)
