"""Bodies of Responses: honoured and refused fields, the parameter that an error names, and no other exception."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.proxy.conversation.call_request import ToolUse
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.responses_request import parse
from weir.proxy.errors import BadRequest

TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "weir", "input": "Hi"} | fields).encode()


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "add", "arguments": "{}", "id": f"fc_{name}"}


def called(*names: str) -> list[dict[str, Any]]:
    return [{"id": name, "type": "function", "function": {"name": "add", "arguments": "{}"}} for name in names]


def test_items_take_the_form_that_renderers_take() -> None:
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a", "annotations": []}],
    }
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        *(reasoning, said, call("c1"), call("c2")),
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        call("c3"),
        {"type": "function_call_output", "call_id": "c3", "output": "3"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "x"},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
        {"role": "user", "content": "More"},
    ]
    request = parse(body(input=items, instructions="You add.", tools=[TOOL]), {}, Beginnings())
    assert request.messages == [
        {"role": "system", "content": "You add."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": called("c1", "c2")},
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
        {"role": "tool", "content": "2", "tool_call_id": "c2"},
        {"role": "assistant", "content": "", "tool_calls": called("c3")},
        {"role": "tool", "content": "3", "tool_call_id": "c3"},
        {"role": "assistant", "content": "Done.", "reasoning_content": "so"},
        {"role": "assistant", "content": "Really."},
        {"role": "user", "content": "More"},
    ]
    function = {name: TOOL[name] for name in ("name", "description", "parameters", "strict")}
    assert request.tools == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (ToolUse.AUTO, None)),
        ("none", (ToolUse.NONE, None)),
        ("required", (ToolUse.REQUIRED, None)),
        ({"type": "function", "name": "add"}, (ToolUse.REQUIRED, "add")),
    ],
)
def test_tool_choice_says_what_the_agent_wants_of_tools(choice: Any, expected: Any) -> None:
    request = parse(body(tools=[TOOL], tool_choice=choice), {}, Beginnings())
    assert (request.tool_use, request.tool_named) == expected


@pytest.mark.parametrize("header", ["session_id", "session-id"])
def test_what_agents_send_beside_is_accepted_and_their_names_are_kept(header: str) -> None:
    request = parse(
        body(
            reasoning={"effort": "high", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            prompt_cache_key="k",
            service_tier="auto",
            store=False,
            text={"verbosity": "low"},
            truncation="disabled",
            metadata={"run": "7"},
        ),
        {header: "codex"},
        Beginnings(),
    )
    assert (request.session_hint, request.agent_ids) == ("codex", {"metadata.run": "7", "prompt_cache_key": "k"})
    assert request.thread is not None and not request.thread.kept
    assert not request.logprobs
    assert [wish.where for wish in request.wishes] == ["reasoning.effort", "reasoning.summary", "text.verbosity"]


def test_functions_of_a_namespace_are_named_after_it_and_host_tools_stand_apart() -> None:
    space = {
        "type": "namespace",
        "name": "mcp__files__",
        "description": "On files.",
        "tools": [TOOL, TOOL | {"name": "sub"}],
    }
    other = {"type": "namespace", "name": "agents", "tools": [TOOL]}
    called = {"type": "function_call", "call_id": "c", "namespace": "agents", "name": "add", "arguments": "{}"}
    request = parse(
        body(
            tools=[TOOL, {"type": "web_search"}, space, other],
            tool_choice={"type": "function", "namespace": "agents", "name": "add"},
            input=[{"role": "user", "content": "Hi"}, called],
        ),
        {},
        Beginnings(),
    )
    assert request.tools is not None
    functions = {tool["function"]["name"]: tool["function"].get("description") for tool in request.tools}
    assert functions == {
        "add": "Adds.",
        "mcp__files__add": "On files.\n\nAdds.",
        "mcp__files__sub": "Adds.",
        "agents__add": "Adds.",
    }
    assert [(tool.where, tool.type) for tool in request.hosted_tools] == [("tools[1]", "web_search")]
    assert request.tool_named == "agents__add"
    assert request.messages[1]["tool_calls"][0]["function"]["name"] == "agents__add"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": 5}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ({"input": [{"type": "web_search_call"}]}, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"tools": [{"type": 5}]}, "tools[0]"),
    ({"tools": [{"type": "namespace", "tools": [TOOL]}]}, "tools[0].name"),
    ({"tools": [{"type": "custom"}]}, "tools[0].name"),
    ({"tools": [{"type": "custom", "name": "p", "more": 1}]}, "tools[0].more"),
    ({"tools": [{"type": "custom", "name": "p", "format": {"type": "regex"}}]}, "tools[0].format.type"),
    ({"tools": [{"type": "custom", "name": "p", "format": {"type": "grammar"}}]}, "tools[0].format.syntax"),
    ({"tools": [TOOL, {"type": "custom", "name": "add"}]}, "tools[1]"),
    ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "p"}]}, "input[0].input"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": {}}]}, "tools[0].tools"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "x"}]}]}, "tools[0].tools[0]"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [TOOL, TOOL]}]}, "tools[0]"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [], "more": 1}]}, "tools[0].more"),
    ({"reasoning": "high"}, "reasoning"),
    ({"text": {"verbosity": 1}}, "text.verbosity"),
    ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "sub"}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools"}, "tools": [TOOL]}, "tool_choice"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"conversation": "c"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"include": [5]}, "include[0]"),
    ({"stream_options": {"include_usage": True}}, "stream_options.include_usage"),
    ({"no_such_field": 1}, "no_such_field"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body(**fields), {}, Beginnings())
    assert (caught.value.status, caught.value.param) == (400, param)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "refusal", "reasoning_text", "input_image"]) | json_values},
    optional=dict.fromkeys(("text", "refusal"), st.text(max_size=5) | json_values),
)
content = st.lists(parts, max_size=3) | json_values
items = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "function_call_output", "custom_tool_call", "reasoning"])
        | json_values,
        "role": st.sampled_from(["user", "assistant", "system", "developer"]) | json_values,
    }
    | dict.fromkeys(("content", "summary", "output"), content)
    | dict.fromkeys(("call_id", "name", "arguments", "input"), st.text(max_size=5) | json_values),
)
tools = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["function", "namespace", "custom", "web_search"]) | json_values,
        "name": st.text(max_size=5) | json_values,
    },
    optional=dict.fromkeys(("description", "parameters", "strict", "tools", "format"), json_values),
)
others = dict.fromkeys(
    ("instructions", "tool_choice", "text", "include", "reasoning", "metadata", "user", "store", "stream"), json_values
) | dict.fromkeys(("previous_response_id", "max_output_tokens", "stream_options", "parallel_tool_calls"), json_values)


@settings(max_examples=400, deadline=None)
@given(
    st.fixed_dictionaries(
        {"model": st.just("weir") | json_values, "input": st.lists(items, max_size=4) | json_values},
        optional={"tools": st.lists(tools, max_size=2) | json_values} | others,
    )
)
def test_any_json_object_is_parsed_or_refused_as_a_bad_request(fields: dict[str, Any]) -> None:
    try:
        request = parse(json.dumps(fields).encode(), {}, Beginnings())
    except BadRequest as error:
        assert error.message
    else:
        assert request.model == fields["model"]
        assert all(isinstance(message["content"], str) for message in request.messages)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_bad_request(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(data, {}, Beginnings())
