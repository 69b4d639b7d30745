"""Bodies of Messages: honoured and refused fields, the parameter that an error names, and no other exception."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.proxy.conversation.call_request import ToolUse
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects.messages_request import parse, parse_for_count
from weir.proxy.errors import BadRequest

USER = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
TEXT = {"type": "text", "text": "a"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "weir", "max_tokens": 9, "messages": USER} | fields).encode()


def test_sampling_fields_arrive_as_they_were_sent() -> None:
    request = parse(body(temperature=0, top_p=0.5, top_k=7, stop_sequences=["a", "b"]), {}, Beginnings())
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (9, 0.0, 0.5, 7)
    assert (sampling.stop, sampling.extra) == (("a", "b"), {})


def test_messages_take_the_form_that_renderers_take() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    messages = [
        {"role": "user", "content": [TEXT, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT, call]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [TEXT, TEXT]},
                {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c3"},
                TEXT,
            ],
        },
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
        {"role": "user", "content": "More"},
    ]
    request = parse(body(messages=messages, system=[TEXT, TEXT], tools=[TOOL]), {}, Beginnings())
    function = {"name": "add", "arguments": '{"a":1}'}
    assert request.messages == [
        {"role": "system", "content": "aa"},
        {"role": "user", "content": "ab"},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "aa", "tool_call_id": "c1"},
        {"role": "tool", "content": "Error: no", "tool_call_id": "c2"},
        {"role": "tool", "content": "", "tool_call_id": "c3"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "More"},
    ]
    described = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    assert request.tools == [{"type": "function", "function": described}]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (ToolUse.AUTO, None, True)),
        ({"type": "auto"}, (ToolUse.AUTO, None, True)),
        ({"type": "none"}, (ToolUse.NONE, None, True)),
        ({"type": "any", "disable_parallel_tool_use": True}, (ToolUse.REQUIRED, None, False)),
        ({"type": "tool", "name": "add"}, (ToolUse.REQUIRED, "add", True)),
    ],
)
def test_tool_choice_says_what_the_agent_wants_of_tools(choice: Any, expected: Any) -> None:
    request = parse(body(tools=[TOOL], tool_choice=choice), {}, Beginnings())
    assert (request.tool_use, request.tool_named, request.parallel_tool_calls) == expected


def test_what_coding_agents_send_beside_is_accepted() -> None:
    request = parse(
        body(
            thinking={"type": "enabled", "budget_tokens": 1024},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            output_config={"effort": "high"},
            service_tier="auto",
            metadata={"user_id": "u"},
            tools=[TOOL | {"type": "custom", "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}],
        ),
        {"anthropic-beta": "claude-code-20250219"},
        Beginnings(),
    )
    assert request.agent_ids == {"metadata.user_id": "u"}
    assert request.session_hint == "u"
    assert [wish.where for wish in request.wishes] == ["thinking", "thinking.budget_tokens", "output_config.effort"]


def test_a_schema_for_the_answer_is_passed_on() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    request = parse(body(output_config={"format": form}), {}, Beginnings())
    assert request.sampling.extra == {"json_schema": '{"type":"object"}'}


def test_counting_needs_no_max_tokens() -> None:
    data = json.dumps({"model": "weir", "messages": USER}).encode()
    assert parse_for_count(data, {}).sampling.max_tokens is None
    with pytest.raises(BadRequest, match="max_tokens"):
        parse(data, {}, Beginnings())


def of_user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [*USER, {"role": "assistant", "content": "I "}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": "I"}]}, "messages"),
    (
        {
            "messages": [*USER, {"role": "assistant", "content": "I"}],
            "output_config": {"format": {"type": "json_schema", "schema": {}}},
        },
        "messages",
    ),
    (
        {
            "messages": [
                *USER,
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
            ]
        },
        "messages",
    ),
    (of_user({"type": "document", "source": {}}), "messages.0.content.0"),
    (of_user({"type": "document", "source": {}}), "messages.0.content.0"),
    (of_user({"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
    (
        of_user({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document"}]}),
        "messages.0.content.0.content.0",
    ),
    ({"system": [{"type": "image"}]}, "system.0"),
    ({"system": 5}, "system"),
    ({"tools": [{"type": 5}]}, "tools.0.type"),
    ({"output_config": {"effort": 5}}, "output_config.effort"),
    ({"tools": [{"name": "add"}]}, "tools.0.input_schema"),
    ({"tools": [TOOL | {"defer_loading": True}]}, "tools.0.defer_loading"),
    ({"tools": [TOOL | {"input_examples": [{}]}]}, "tools.0.input_examples"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "sub"}, "tools": [TOOL]}, "tool_choice.name"),
    ({"tool_choice": {"type": "all"}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "auto", "more": 1}, "tools": [TOOL]}, "tool_choice.more"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"thinking": {"type": "loud"}}, "thinking.type"),
    ({"thinking": {}}, "thinking.type"),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits.0"),
    ({"mcp_servers": [{}]}, "mcp_servers"),
    ({"thread": {"type": "create"}}, "thread"),
    ({"container": "c"}, "container"),
    ({"no_such_field": 1}, "no_such_field"),
    ({"temperature": 3}, "temperature"),
    ({"top_p": 0}, "top_p"),
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
kinds = st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document"])
blocks = st.fixed_dictionaries(
    {"type": kinds | json_values},
    optional=dict.fromkeys(("text", "thinking", "id", "name", "tool_use_id"), st.text(max_size=5) | json_values)
    | dict.fromkeys(("input", "content", "is_error", "cache_control"), json_values),
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]) | json_values},
    optional={"content": st.lists(blocks, max_size=4) | json_values},
)
tools = st.fixed_dictionaries(
    {"name": st.text(max_size=5) | json_values, "input_schema": st.just({}) | json_values},
    optional=dict.fromkeys(("type", "description", "strict", "defer_loading", "cache_control"), json_values),
)
others = dict.fromkeys(
    ("max_tokens", "tool_choice", "stop_sequences", "temperature", "top_k", "metadata", "thinking", "stream"),
    json_values,
) | dict.fromkeys(("output_config", "output_format", "context_management", "mcp_servers", "thread"), json_values)


@settings(max_examples=400, deadline=None)
@given(
    st.fixed_dictionaries(
        {"model": st.just("weir") | json_values, "messages": st.lists(messages, max_size=3) | json_values},
        optional={"system": st.lists(blocks, max_size=2) | json_values, "tools": st.lists(tools, max_size=2)} | others,
    )
)
def test_any_json_object_is_parsed_or_refused_as_a_bad_request(fields: dict[str, Any]) -> None:
    try:
        request = parse_for_count(json.dumps(fields).encode(), {})
    except BadRequest as error:
        assert error.message
    else:
        assert request.model == fields["model"]
        assert request.messages[-1]["role"] != "assistant"
        assert all(isinstance(message["content"], str) for message in request.messages)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_bad_request(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(data, {}, Beginnings())
