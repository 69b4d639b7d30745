"""Later turns of Responses and Messages: what is known of them is not read again, and they say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weir.proxy.conversation.call_request import CallRequest
from weir.proxy.conversation.digests import chain
from weir.proxy.conversation.parsed_history import Beginnings, History
from weir.proxy.dialects import messages_request, responses_request
from weir.proxy.errors import BadRequest

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
MARK = {"cache_control": {"type": "ephemeral"}}


def of_items(number: int, indent: int | None = None, **more: Any) -> bytes:
    """A body of Responses after so many turns, whose answers are several items that become one message."""
    items: list[dict[str, Any]] = [{"role": "developer", "content": "words " * 200}]
    for turn in range(number):
        items.append({"role": "user", "content": [{"type": "input_text", "text": f"Turn {turn}: é☃ ]}},{{[ "}]})
        if turn < number - 1:
            items += [
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
                {"type": "function_call", "call_id": f"c{turn}", "name": "add", "arguments": '{"a": 1.0}'},
                {"type": "function_call_output", "call_id": f"c{turn}", "output": "2"},
            ]
    tools = [{"type": "function", "name": "add", "parameters": SCHEMA}]
    fields = {"model": "weir", "instructions": "You add.", "input": items, "tools": tools}
    return json.dumps(fields | more, indent=indent).encode()


def of_blocks(number: int, indent: int | None = None, **more: Any) -> bytes:
    """A body of Messages after so many turns; as Claude Code does, it marks the last message, and only that."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "words " * 200}]
    for turn in range(number):
        call = {"type": "tool_use", "id": f"c{turn}", "name": "add", "input": {"a": 1.0}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": f"{turn}: é☃ ]}},{{[ "}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    messages[-1] = {"role": "user", "content": [messages[-1]["content"][0] | MARK]}
    tools = [{"name": "add", "input_schema": SCHEMA}]
    fields = {"model": "weir", "max_tokens": 9, "system": [{"type": "text", "text": "You add."} | MARK]}
    return json.dumps(fields | {"messages": messages, "tools": tools} | more, indent=indent).encode()


def parse(body: bytes, beginnings: Beginnings | None = None) -> CallRequest:
    """Parse a body of either dialect; without known beginnings by default."""
    module = messages_request if b"max_tokens" in body else responses_request
    return module.parse(body, {}, Beginnings() if beginnings is None else beginnings)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("turns", [of_items, of_blocks])
def test_a_later_turn_reads_its_new_items_only_and_says_the_same(turns: Any, indent: int | None) -> None:
    beginnings = Beginnings()
    for number in range(1, 9):
        request = parse(turns(number, indent), beginnings)
        whole = parse(turns(number, indent))
        assert isinstance(request.messages, History) is (number > 1)
        assert isinstance(whole.messages, list)
        assert request.digests == whole.digests == chain(whole.tools, whole.messages)
        assert len(request.messages) == len(whole.messages)
        assert request.messages[-2:] == whole.messages[-2:]
        assert request.messages[:2] == whole.messages[:2]
        assert request.messages == whole.messages


@pytest.mark.parametrize("turns", [of_items, of_blocks])
def test_only_the_same_bytes_behind_the_same_prompt_and_tools_are_a_known_beginning(turns: Any) -> None:
    beginnings = Beginnings()
    parse(turns(4), beginnings)
    body = turns(5)
    for data in (body.replace(b"You add.", b"You sub."), body.replace(b"words", b"Words", 1)):
        request = parse(data, beginnings)
        assert not isinstance(request.messages, History)
        assert request.digests == parse(data).digests
    assert isinstance(parse(body, beginnings).messages, History)


def test_an_answer_that_further_items_may_belong_to_ends_no_beginning() -> None:
    beginnings = Beginnings()
    cut = json.loads(of_items(3))
    cut["input"] += [{"type": "message", "role": "assistant", "content": "So."}]
    whole = {**cut, "input": [*cut["input"], {"type": "function_call", "call_id": "c", "name": "add", "arguments": ""}]}
    for fields in (cut, whole):
        data = json.dumps(fields).encode()
        request = parse(data, beginnings)
        assert not isinstance(request.messages, History)
        assert request.messages == parse(data).messages
        assert request.digests == parse(data).digests
    assert [call["id"] for call in request.messages[-1]["tool_calls"]] == ["c"]
    assert request.messages[-1]["content"] == "So."


def test_a_begun_answer_is_no_message_of_a_later_turn_either() -> None:
    beginnings = Beginnings()
    parse(of_blocks(4), beginnings)
    fields = json.loads(of_blocks(5))
    fields["messages"].append({"role": "assistant", "content": "It is"})
    data = json.dumps(fields).encode()
    request, whole = parse(data, beginnings), parse(data)
    assert (request.prefill, request.messages[-1]["role"]) == ("It is", "tool")
    assert request.messages == whole.messages
    assert request.digests == whole.digests == chain(whole.tools, whole.messages)


def test_input_that_continues_a_response_has_no_digests_of_its_own() -> None:
    assert parse(of_items(2, previous_response_id="resp_call_1")).digests is None


def test_what_is_wrong_in_a_new_item_is_named_by_its_place_in_the_whole() -> None:
    beginnings = Beginnings()
    parse(of_items(4), beginnings)
    with pytest.raises(BadRequest) as raised:
        parse(
            of_items(5).replace(
                b'"role": "user", "content": [{"type": "input_text", "text": "Turn 4',
                b'"role": "x", "content": [{"type": "input_text", "text": "Turn 4',
            ),
            beginnings,
        )
    assert raised.value.param == "input[21].role"
    parse(of_blocks(4), beginnings)
    with pytest.raises(BadRequest) as raised:
        parse(of_blocks(5).replace(b'"tool_use_id": "c4"', b'"tool_use_id": 4'), beginnings)
    assert raised.value.param == "messages.10.content.0.tool_use_id"
