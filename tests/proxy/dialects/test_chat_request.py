"""Bodies of chat completions: honoured and refused fields, the parameter named in errors, and no other exception."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.proxy.conversation.call_request import CallRequest, ToolUse
from weir.proxy.conversation.digests import chain
from weir.proxy.conversation.parsed_history import Beginnings, History
from weir.proxy.dialects import chat_request
from weir.proxy.errors import BadRequest

USER = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def parse(data: bytes) -> CallRequest:
    """Parse a body without known beginnings."""
    return chat_request.parse(data, Beginnings())


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "weir", "messages": USER} | fields).encode()


def test_without_sampling_fields_the_full_distribution_is_asked_for() -> None:
    sampling = parse(body()).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (1.0, 1.0, -1, None)
    assert (sampling.stop, sampling.seed, sampling.extra) == ((), None, {})


def test_sampling_fields_arrive_as_they_were_sent() -> None:
    request = parse(
        body(max_tokens=9, temperature=0, top_p=0.5, top_k=7, seed=-3, stop=["a", "b"], presence_penalty=0.5, min_p=0.1)
    )
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (9, 0.0, 0.5, 7)
    assert (sampling.seed, sampling.stop) == (-3, ("a", "b"))
    assert sampling.extra == {"presence_penalty": 0.5, "min_p": 0.1}


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert parse(body(max_tokens=9, max_completion_tokens=4)).sampling.max_tokens == 4


def test_harmless_and_neutral_fields_are_accepted_and_null_means_absent() -> None:
    request = parse(
        body(
            user="u",
            metadata={"session_id": "s", "run": "7", "n": 1},
            store=False,
            service_tier="auto",
            parallel_tool_calls=True,
            response_format={"type": "text"},
            logit_bias={"5": 0},
            n=1,
            top_logprobs=0,
            frequency_penalty=0,
            tools=None,
            functions=None,
        )
    )
    assert request.session_hint == "s"
    assert request.agent_ids == {"user": "u", "metadata.session_id": "s", "metadata.run": "7"}
    assert request.sampling.extra == {}


def test_messages_take_the_form_that_renderers_take() -> None:
    request = parse(
        body(
            messages=[
                {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
                {"role": "user", "content": "Add", "name": "ann"},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
            ],
            tools=[TOOL],
        )
    )
    assert request.messages == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Add", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
    ]
    assert request.tools == [TOOL]
    assert request.parses_tools


@pytest.mark.parametrize(("choice", "expected"), [("auto", True), ("none", False), (None, True)])
def test_tool_choice_none_keeps_tool_calls_as_text(choice: str | None, expected: bool) -> None:
    assert parse(body(tools=[TOOL], tool_choice=choice)).parses_tools is expected


def test_wishes_beyond_the_messages_arrive() -> None:
    request = parse(
        body(
            tools=[TOOL], tool_choice={"type": "function", "function": {"name": "add"}}, parallel_tool_calls=False, n=3
        )
    )
    assert (request.tool_use, request.tool_named) == (ToolUse.REQUIRED, "add")
    assert (request.parallel_tool_calls, request.num_answers) == (False, 3)
    assert parse(body(tools=[TOOL], tool_choice="required")).tool_use is ToolUse.REQUIRED
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = parse(body(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}))
    assert json.loads(asked.sampling.extra["json_schema"]) == schema
    anything = parse(body(response_format={"type": "json_object"}))
    assert json.loads(anything.sampling.extra["json_schema"]) == {"type": "object"}


REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": True}, "n"),
    ({"n": 1.0}, "n"),
    ({"model": None}, "model"),
    ({"model": 7}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": ["Hi"]}, "messages[0]"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]}]},
        "messages[0].content[0]",
    ),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0].function"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"logit_bias": {"hello": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"²": 1}}, "logit_bias"),
    ({"logit_bias": {"4294967296": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 100.5}}, "logit_bias.5"),
    ({"logit_bias": {"5": None}}, "logit_bias.5"),
    ({"logit_bias": {"5": True}}, "logit_bias.5"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": True, "logprobs": True}, "top_logprobs"),
    ({"reasoning_effort": 5}, "reasoning_effort"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"functions": [{}]}, "functions"),
    ({"no_such_field": 1}, "no_such_field"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function"}, "tools": [TOOL]}, "tool_choice.function"),
    ({"tool_choice": {"type": "function", "function": {"name": "sub"}}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools"}, "tools": [TOOL]}, "tool_choice"),
    ({"tools": [{"type": "code_interpreter"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"colour": 1}}, "stream_options.colour"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 2**40}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"stop": ""}, "stop"),
    ({"stop": [1]}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"seed": 2**70}, "seed"),
    ({"metadata": []}, "metadata"),
    ({"user": 5}, "user"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body(**fields))
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"model": "\\ud800"}', b"[" * 100_000, b'{"a":NaN}', b"1e999"],
    ids=lambda data: repr(data[:20]),
)
def test_a_body_that_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
message_values = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]) | json_values},
    optional=dict.fromkeys(
        ("content", "name", "tool_calls", "tool_call_id", "reasoning_content", "audio"), json_values
    ),
)
field_names = [
    *("model", "messages", "tools", "tool_choice", "stream", "stream_options", "n", "max_tokens", "temperature"),
    *("top_p", "top_k", "seed", "stop", "logprobs", "metadata", "user", "response_format", "logit_bias", "min_p"),
]


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {"model": st.just("weir") | json_values, "messages": st.lists(message_values, max_size=3) | json_values},
        optional=dict.fromkeys(field_names[2:], json_values),
    )
)
def test_any_json_object_is_parsed_or_refused_as_a_bad_request(fields: dict[str, Any]) -> None:
    try:
        request = parse(json.dumps(fields).encode())
    except BadRequest as error:
        assert error.message
    else:
        assert request.model == fields["model"]
        assert len(request.messages) == len(fields["messages"])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_bad_request(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(data)


def turns(number: int, indent: int | None = None) -> bytes:
    """A conversation of some turns with a tool, as an agent sends it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief. " * 100}]
    for turn in range(number):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "add", "arguments": '{"a": 1.0}'}}
        messages += [
            {"role": "user", "content": f"Turn {turn}: é☃ ]}},{{[ " + "words " * (7 * turn)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": [{"type": "text", "text": "2"}]},
        ]
    return json.dumps({"model": "weir", "messages": messages, "tools": [TOOL]}, indent=indent).encode()


@pytest.mark.parametrize("indent", [None, 2])
def test_a_later_turn_reads_its_new_messages_only_and_says_the_same(indent: int | None) -> None:
    beginnings = Beginnings()
    for number in range(1, 12):
        request = chat_request.parse(turns(number, indent), beginnings)
        whole = parse(turns(number, indent))
        assert isinstance(request.messages, History) is (number > 1)
        assert request.digests == whole.digests == chain(whole.tools, whole.messages)
        assert len(request.messages) == len(whole.messages) == 3 * number + 1
        assert request.messages[-3:] == whole.messages[-3:]
        assert request.messages[-1] == whole.messages[-1]
        assert request.messages == whole.messages
        assert list(request.messages) == whole.messages
        assert request.messages[0] == whole.messages[0]
        assert request.messages[1:4] == whole.messages[1:4]


def test_only_the_same_bytes_behind_the_same_tools_are_a_known_beginning() -> None:
    beginnings = Beginnings()
    chat_request.parse(turns(4), beginnings)
    changed = turns(5).replace(b"Turn 0", b"Turn 9", 1)
    other_tools = turns(5).replace(b'"name": "add", "parameters"', b'"name": "sub", "parameters"')
    for data in (changed, other_tools):
        request = chat_request.parse(data, beginnings)
        assert not isinstance(request.messages, History)
        assert request.digests == parse(data).digests


def test_sessions_of_a_group_find_their_own_beginnings_behind_the_prompt_that_they_share() -> None:
    beginnings = Beginnings()
    task = {"role": "system", "content": "task " * 1000}
    histories = [[task, {"role": "user", "content": f"session {number}"}] for number in range(8)]
    for turn in range(4):
        for number, messages in enumerate(histories):
            data = json.dumps({"model": "weir", "messages": messages}).encode()
            for _ in range(3):  # sent again, it takes the place of no other
                request = chat_request.parse(data, beginnings)
            assert isinstance(request.messages, History) is (turn > 0)
            assert request.digests == parse(data).digests
            messages += [{"role": "assistant", "content": f"{number}.{turn}"}, {"role": "user", "content": "on"}]


def test_what_is_wrong_in_a_new_message_is_named_by_its_place_in_the_whole() -> None:
    beginnings = Beginnings()
    chat_request.parse(turns(4), beginnings)
    broken = turns(5).replace(b'"role": "user", "content": "Turn 4', b'"role": "robot", "content": "Turn 4')
    with pytest.raises(BadRequest) as caught:
        chat_request.parse(broken, beginnings)
    assert caught.value.param == "messages[13].role"


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 6000), put=st.binary(max_size=6))
def test_a_body_that_begins_like_a_known_one_is_read_as_if_it_were_the_first(cut: int, put: bytes) -> None:
    beginnings = Beginnings()
    chat_request.parse(turns(4), beginnings)
    data = turns(5)[:cut] + put + turns(5)[cut:]
    try:
        expected = parse(data)
    except BadRequest:
        with pytest.raises(BadRequest):
            chat_request.parse(data, beginnings)
    else:
        request = chat_request.parse(data, beginnings)
        assert (list(request.messages), request.digests) == (list(expected.messages), expected.digests)
