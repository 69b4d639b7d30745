"""Calls and results as text by the convention of Hermes."""

from typing import Any

import pytest
from support_families import TOOLS, call_message

from weir.proxy.rendering.hermes_tools import as_text, before_open_call, calls_in

ONE = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
QUESTION: dict[str, Any] = {"role": "user", "content": "Add."}


@pytest.mark.parametrize(
    ("content", "text", "names"),
    [
        ("Nothing.", "Nothing.", []),
        (f"  Well. \n{ONE}", "  Well.", ["add"]),
        (f"{ONE}\n{ONE}\nDone.", "Done.", ["add", "add"]),
        (f"<tool_call>no JSON</tool_call>{ONE}", "<tool_call>no JSON</tool_call>", ["add"]),
        ('<tool_call>{"arguments": {}}</tool_call>', '<tool_call>{"arguments": {}}</tool_call>', []),
        ('<tool_call>["add"]</tool_call>', '<tool_call>["add"]</tool_call>', []),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "<tool_call>" + "[" * 100_000 + "</tool_call>", []),
        ("<tool_call>open", "<tool_call>open", []),
    ],
)
def test_calls_are_read_and_the_rest_is_text(content: str, text: str, names: list[str]) -> None:
    left, calls = calls_in(content)
    assert (left, [name for name, _ in calls]) == (text, names)


def test_an_open_call_is_not_shown() -> None:
    assert before_open_call("Well.\n<tool_call>{") == "Well.\n"
    assert before_open_call("Well.") == "Well."


def test_what_is_written_is_what_is_read() -> None:
    call = call_message({"a": 1, "note": "ü </x>"})
    written = as_text([QUESTION, call], None, has_system=True)[1]
    assert "tool_calls" not in written
    assert calls_in(written["content"]) == ("", [("add", {"a": 1, "note": "ü </x>"})])
    empty = {"id": "c", "type": "function", "function": {"name": "add", "arguments": ""}}
    written = as_text([{"role": "assistant", "content": "", "tool_calls": [empty]}], None, has_system=True)[0]
    assert calls_in(written["content"]) == ("", [("add", {})])


def test_tools_stand_in_the_system_prompt_or_before_the_first_question() -> None:
    system = {"role": "system", "content": "Be brief."}
    with_system = as_text([system, QUESTION], TOOLS, has_system=True)
    assert with_system[0]["content"].startswith("Be brief.\n\n# Tools\n") and with_system[1] == QUESTION
    alone = as_text([QUESTION], TOOLS, has_system=True)
    assert [m["role"] for m in alone] == ["system", "user"] and '"name": "add"' in alone[0]["content"]
    without = as_text([QUESTION], TOOLS, has_system=False)
    assert [m["role"] for m in without] == ["user"]
    assert without[0]["content"].startswith("# Tools\n") and without[0]["content"].endswith("\n\nAdd.")
    assert as_text([QUESTION], None, has_system=True) == [QUESTION]


def test_results_that_follow_each_other_are_one_message() -> None:
    results = [{"role": "tool", "content": text, "tool_call_id": "c"} for text in ("1", "2")]
    assert as_text([*results, QUESTION], None, has_system=True) == [
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"},
        QUESTION,
    ]
