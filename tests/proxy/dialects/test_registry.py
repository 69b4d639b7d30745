"""Properties of all dialects: one conversation gives one prompt, and no body makes the proxy fail."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_way import Way

from weir.proxy.conversation.digests import chain
from weir.proxy.conversation.parsed_history import Beginnings
from weir.proxy.dialects import chat_request, messages_request, responses_request
from weir.store.records.call_record import Stitch, unpack_ids

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
ARGUMENTS = '{"b": "é", "a": 1}'
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")

CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [{"type": "function", "function": ADD}],
}
RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "Add."},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I add."}]},
        {"type": "function_call", "call_id": "x", "name": "add", "arguments": '{"a":1,"b":"\\u00e9"}'},
        {"type": "function_call_output", "call_id": "x", "output": "2"},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
    "tools": [{"type": "function", **ADD}],
}
MESSAGES: dict[str, Any] = {
    "max_tokens": 50,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I add."},
                {"type": "tool_use", "id": "y", "name": "add", "input": {"a": 1, "b": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "y", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
}


def encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": "weir"} | fields).encode()


def test_one_history_has_one_digest_in_every_dialect() -> None:
    requests = [
        chat_request.parse(encoded(CHAT), Beginnings()),
        responses_request.parse(encoded(RESPONSES), {}, Beginnings()),
        messages_request.parse(encoded(MESSAGES), {}, Beginnings()),
    ]
    chat, *others = [chain(request.tools, request.messages) for request in requests]
    assert others == [chat, chat]


def test_a_conversation_goes_on_exactly_when_its_agent_changes_the_dialect(way: Way) -> None:
    way.say("One.", "Two.", "Three.")
    user, more = {"role": "user", "content": "Hi"}, {"role": "user", "content": "More"}
    said = [{"role": "assistant", "content": text} for text in ("One.", "Two.")]
    for path, fields in (
        ("/v1/messages", {"max_tokens": 50, "messages": [user]}),
        ("/v1/responses", {"input": [user, said[0], more]}),
        ("/v1/chat/completions", {"messages": [user, said[0], more, said[1], more]}),
    ):
        assert way.proxy.post(path, {"model": "weir"} | fields).status_code == 200
    records = way.proxy.records()
    assert [record.dialect for record in records] == ["messages", "responses", "chat"]
    assert [record.stitch for record in records] == [Stitch.NEW_ROOT, Stitch.BRIDGED, Stitch.BRIDGED]
    for one, two in itertools.pairwise(records):
        exact = unpack_ids(one.prompt_ids).tolist() + unpack_ids(one.output_ids).tolist()
        assert unpack_ids(two.prompt_ids).tolist()[: len(exact)] == exact


@pytest.mark.parametrize("fields", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
def test_a_body_that_is_nested_to_the_limit_is_answered_or_refused(way: Way, fields: dict[str, Any]) -> None:
    path = "/v1/chat/completions" if fields is CHAT else "/v1/responses" if fields is RESPONSES else "/v1/messages"
    way.say("Hello.")
    for depth in (900, 970, 985, 990, 995):
        nested = json.dumps(fields).replace('{"type": "integer"}', "[" * depth + "]" * depth)
        answer = way.proxy.post(path, b'{"model": "weir", ' + nested[1:].encode())
        assert answer.status_code in (200, 400), (depth, answer.text)


COMPLETIONS: dict[str, Any] = {"prompt": ["def add(", [5, 6]], "n": 2, "max_tokens": 5, "logprobs": 0, "stop": ["x"]}
BODIES = {"/chat/": CHAT, "/v1/completions": COMPLETIONS, "responses": RESPONSES}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, bytes]:
    """A sound body for some route in which a few values were replaced by others."""
    route = draw(st.sampled_from(ROUTES))
    sound = next((body for name, body in BODIES.items() if name in route), MESSAGES)
    fields: Any = json.loads(encoded(sound))
    if route.endswith("count_tokens"):
        del fields["max_tokens"]
    fields["stream"] = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        at: Any = fields
        while True:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[key], dict | list) or not at[key] or draw(st.booleans()):
                break
            at = at[key]
        at[key] = draw(json_values)
    return route, json.dumps(fields).encode()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=broken())
def test_a_body_that_is_nearly_valid_is_answered_or_refused_and_never_a_failure(
    way: Way, case: tuple[str, bytes]
) -> None:
    way.say("Hello.")
    route, body = case
    answer = httpx.post(way.proxy.url + route, content=body, trust_env=False, timeout=60)
    assert answer.status_code in (200, 400, 404), (route, body, answer.text)
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["message"] and (answer.json().get("type") == "error") is route.startswith("/v1/messages")
