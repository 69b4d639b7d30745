"""Custom tools of the Responses API: their input is text to the caller, and one argument to the model."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from support_way import Way, text_of

from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.custom_tools import arguments_of, input_in
from weir.proxy.dialects.responses_request import parse
from weir.proxy.errors import BadRequest

PATCH = '*** Begin Patch\n+ "é" \\ x\n*** End Patch'
USER = {"role": "user", "content": "Hi"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
TOOL: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}


@pytest.mark.parametrize("text", ["", PATCH, '{"input": "x"}'])
def test_an_input_is_the_same_text_again(text: str) -> None:
    assert input_in(arguments_of(text)) == text
    assert input_in(json.dumps({"input": text}, indent=1)) == text


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"input": 1}', '{"input": "a", "more": 1}', '{"patch": "a"}'])
def test_arguments_of_another_form_are_shown_as_they_are(arguments: str) -> None:
    assert input_in(arguments) == arguments


def test_a_grammar_is_in_the_description_and_named_as_not_enforced() -> None:
    body = {"model": "weir", "input": [USER], "tools": [TOOL], "tool_choice": {"type": "custom", "name": TOOL["name"]}}
    request = parse(json.dumps(body).encode(), {}, Beginnings())
    assert request.tools is not None
    (tool,) = request.tools
    assert tool["function"]["description"] == "Edits files.\n\nThe input follows this grammar (lark):\nstart: /.+/"
    assert tool["function"]["parameters"]["required"] == ["input"]
    assert (request.ignored_fields, request.tool_named) == (("tools[0].format",), "apply_patch")
    plain = parse(json.dumps(body | {"tools": [{"type": "custom", "name": "apply_patch"}]}).encode(), {}, Beginnings())
    assert plain.ignored_fields == ()


@pytest.mark.parametrize("custom_first", [True, False])
def test_a_function_of_the_same_name_is_refused_in_either_order(custom_first: bool) -> None:
    tools = [TOOL, {"type": "function", "name": TOOL["name"], "parameters": {"type": "object"}}]
    body = {"model": "weir", "input": [USER], "tools": tools if custom_first else tools[::-1]}
    with pytest.raises(BadRequest, match="second tool that the model would know as 'apply_patch'") as refused:
        parse(json.dumps(body).encode(), {}, Beginnings())
    assert refused.value.param == "tools[1]"


def test_a_call_is_an_item_of_its_own_and_its_turn_stays_exact(way: Way) -> None:
    call = f"<tool_call>\n{json.dumps({'name': 'apply_patch', 'arguments': {'input': PATCH}})}\n</tool_call>"
    way.say(call, call, "Done.")
    client = openai.OpenAI(base_url=f"{way.proxy.url}/v1", api_key="any")
    whole = client.responses.create(model="weir", input="Hi", tools=[TOOL])
    with client.responses.stream(model="weir", input="Hi", tools=[TOOL]) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    for answer in (whole, streamed):
        (item,) = [item for item in answer.output if item.type == "custom_tool_call"]
        assert (item.name, item.input) == ("apply_patch", PATCH)
    (written,) = [event for event in events if event.type == "response.custom_tool_call_input.done"]
    assert (written.item_id, written.input) == (item.id, PATCH)
    assert "Edits files." in text_of(way.engine.requests[0]["input_ids"])
    result: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Applied."}
    history: Any = [USER, item.model_dump(exclude_none=True), result]
    client.responses.create(model="weir", input=history, tools=[TOOL])
    *_, last = way.proxy.records()
    assert last.stitch == "bridged"
    assert last.ignored_fields == ("tools[0].format",)
    assert client.responses.retrieve(whole.id).output[-1].type == "custom_tool_call"
