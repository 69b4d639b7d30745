"""The history of a relayed request: what an answer was recorded as is what the next request sends back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weir.proxy.relay.history import history
from weir.proxy.relay.item_answers import ResponsesAnswerParser

USER = {"role": "user", "content": "Hi"}
REASONING = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
FUNCTION = {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": '{"path": "é"}'}
CUSTOM = {"type": "custom_tool_call", "call_id": "t1", "name": "apply_patch", "input": '+ "é" \\ x\n'}


def called(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "t1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("item", "call"),
    [
        (FUNCTION, called("ls", FUNCTION["arguments"])),
        (CUSTOM, called("apply_patch", r'{"input":"+ \"é\" \\ x\n"}')),
    ],
)
def test_a_call_of_a_tool_is_the_same_turn_in_the_answer_and_in_the_next_request(
    item: dict[str, Any], call: dict[str, Any]
) -> None:
    answer = ResponsesAnswerParser()
    answer.whole(json.dumps({"status": "completed", "output": [REASONING, item]}).encode())
    said = {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]}
    assert answer.parsed.message() == said
    output = {"type": f"{item['type']}_output", "call_id": "t1", "output": "Done."}
    _, messages = history("responses", {"input": [USER, REASONING, item, output]})
    assert messages == [USER, said, {"role": "tool", "content": "Done."}]
