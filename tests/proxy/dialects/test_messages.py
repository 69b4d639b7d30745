"""Anthropic Messages over real sockets: the anthropic SDK → proxy → sglang-router → scripted engine → record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import pytest
from support_scripted_engine import Script
from support_way import Way, ids_of, text_of

from weir.store.records.call_record import SessionSource, Stitch, unpack_ids

USER: Any = [{"role": "user", "content": "Hi"}]
TOOLS: Any = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}]
THINK = "<think>\nLet me see.\n</think>\n\n"
CALLS = (
    'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "é"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
)


def client(way: Way, path: str = "", **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=way.proxy.url + path, **({"api_key": "agent", "max_retries": 0} | options))


def events_of(way: Way, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Names and data of a stream's events, as they were sent."""
    body = {"model": "weir", "max_tokens": 300, "messages": USER, "stream": True} | fields
    answer = way.proxy.post("/v1/messages", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_a_message_has_the_form_of_anthropic_and_nothing_more(way: Way) -> None:
    way.say(f"{THINK}Hello there.")
    answer = way.proxy.post("/v1/messages", {"model": "weir", "max_tokens": 300, "messages": USER})
    (record,) = way.proxy.records()
    name = record.call_id.removeprefix("call_")
    num_prompt = len(unpack_ids(record.prompt_ids))
    assert answer.json() == {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": "weir",
        "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": record.call_id},
            {"type": "text", "text": "Hello there."},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": num_prompt - 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": len(unpack_ids(record.output_ids)),
        },
    }
    assert (record.dialect, record.session_source, record.stitch) == (
        "messages",
        SessionSource.INFERRED,
        Stitch.NEW_ROOT,
    )


def test_streamed_blocks_open_grow_and_close_one_after_the_other(way: Way) -> None:
    way.say(Script(ids=ids_of(THINK + CALLS), tokens_per_chunk=3))
    events = events_of(way, tools=TOOLS)
    assert all(name == data["type"] for name, data in events)
    kinds = [(data["type"], data.get("index")) for _, data in events]
    assert list(dict.fromkeys(kinds)) == [
        ("message_start", None),
        *[
            (kind, index)
            for index in range(4)
            for kind in ("content_block_start", "content_block_delta", "content_block_stop")
        ],
        ("message_delta", None),
        ("message_stop", None),
    ]
    starts = [data["content_block"]["type"] for _, data in events if data["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use", "tool_use"]
    assert events[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    (record,) = way.proxy.records()
    num_prompt = len(unpack_ids(record.prompt_ids))
    began = events[0][1]["message"]
    assert began["usage"]["input_tokens"] + began["usage"]["cache_read_input_tokens"] == num_prompt
    assert began["usage"]["output_tokens"] == 0
    assert events[-2][1]["usage"]["output_tokens"] == len(unpack_ids(record.output_ids))


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_sees_the_same_message_streamed_and_not(way: Way, stream: bool) -> None:
    way.say(Script(ids=ids_of(THINK + CALLS), tokens_per_chunk=2))
    asked: Any = {"model": "weir", "max_tokens": 300, "messages": USER, "tools": TOOLS}
    messages = client(way).messages
    if stream:
        with messages.stream(**asked) as events:
            message: Any = events.get_final_message()
    else:
        message = messages.create(**asked)
    thinking, text, first, second = message.content
    (record,) = way.proxy.records()
    assert (thinking.thinking, thinking.signature) == ("Let me see.", record.call_id)
    assert text.text == "I add."
    assert [(call.name, call.input) for call in (first, second)] == [("add", {"a": 1, "b": "é"}), ("add", {})]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == len(unpack_ids(record.output_ids))


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_result_continues_the_exact_ids(way: Way, stream: bool) -> None:
    way.say(THINK + CALLS, "Three.")
    sdk = client(way)

    def turn(history: list[Any]) -> Any:
        asked: Any = {"model": "weir", "max_tokens": 300, "messages": history, "tools": TOOLS, "system": "Be brief."}
        if not stream:
            return sdk.messages.create(**asked)
        with sdk.messages.stream(**asked) as events:
            return events.get_final_message()

    first = turn(USER)
    results = [
        {"type": "tool_result", "tool_use_id": first.content[2].id, "content": [{"type": "text", "text": "3"}]},
        {"type": "tool_result", "tool_use_id": first.content[3].id, "content": "no arguments", "is_error": True},
        {"type": "text", "text": "Go on."},
    ]
    second = turn([*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}])
    assert (second.content[0].text, second.stop_reason) == ("Three.", "end_turn")
    one, two = way.proxy.records()
    exact = unpack_ids(one.prompt_ids).tolist() + unpack_ids(one.output_ids).tolist()
    prompt = unpack_ids(two.prompt_ids).tolist()
    assert (two.stitch, two.stitch_call) == (Stitch.BRIDGED, one.call_id)
    assert prompt[: len(exact)] == exact
    assert text_of(prompt[len(exact) :]) == (
        "\n<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\nError: no arguments\n"
        "</tool_response><|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_stops_and_limits_are_named_as_anthropic_names_them(way: Way, stream: bool) -> None:
    def ended(**fields: Any) -> tuple[str, str | None]:
        body = {"model": "weir", "max_tokens": 300, "messages": USER} | fields
        if stream:
            delta = events_of(way, **fields)[-2][1]["delta"]
            return delta["stop_reason"], delta["stop_sequence"]
        answer = way.proxy.post("/v1/messages", body).json()
        return answer["stop_reason"], answer["stop_sequence"]

    way.say("One. Two. Three.")
    assert ended(stop_sequences=["Two", "x"]) == ("stop_sequence", "Two")
    assert ended(max_tokens=2) == ("max_tokens", None)
    assert ended() == ("end_turn", None)


def test_count_tokens_counts_the_prompt_that_the_call_would_have(way: Way) -> None:
    asked: Any = {"model": "weir", "messages": USER, "tools": TOOLS, "system": [{"type": "text", "text": "Be brief."}]}
    sdk = client(way)
    counted = sdk.messages.count_tokens(**asked).input_tokens
    assert way.engine.requests == []
    way.say("Hello.")
    sdk.messages.create(max_tokens=5, **asked)
    assert counted == len(way.engine.requests[-1]["input_ids"])


def test_errors_are_anthropics(way: Way) -> None:
    refused = way.proxy.post("/v1/messages", {"model": "weir", "messages": USER})
    assert (refused.status_code, refused.json()) == (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "you must provide max_tokens."},
            "request_id": None,
        },
    )
    with pytest.raises(anthropic.NotFoundError, match="'nobody' is not served here"):
        client(way).messages.create(model="nobody", max_tokens=5, messages=USER)
    with pytest.raises(anthropic.AuthenticationError):
        client(way, api_key="weir-sk-unknown").messages.create(model="weir", max_tokens=5, messages=USER)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        long: Any = [{"role": "user", "content": "word " * 6000}]
        client(way).messages.create(model="weir", max_tokens=5, messages=long)
    assert way.proxy.post("/v1/messages/batches", {}).json()["error"]["type"] == "not_found_error"
    assert way.engine.requests == []


def test_an_engine_that_fails_in_the_middle_is_an_error_event(open_way: Callable[..., Way]) -> None:
    way = open_way(lost_retries=0)
    way.say(Script(ids=ids_of("Hello there."), cut="die", cut_after=2))
    with (
        pytest.raises(anthropic.APIStatusError) as raised,
        client(way).messages.stream(model="weir", max_tokens=300, messages=USER) as stream,
    ):
        stream.until_done()
    body: Any = raised.value.body
    assert body["error"]["type"] == "api_error"


def test_a_waiting_stream_is_sent_pings(open_way: Callable[..., Way]) -> None:
    way = open_way(keepalive_s=0.05)
    way.say(Script(ids=ids_of("Hello."), cut="wait", cut_after=1))
    body = {"model": "weir", "max_tokens": 300, "messages": USER, "stream": True}

    with httpx.stream("POST", way.proxy.url + "/v1/messages", json=body, trust_env=False, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line == "event: ping")
        assert next(lines) == 'data: {"type":"ping"}'
        way.engine.wait_waiting()
        way.engine.go_on()
        assert [line for line in lines if line.startswith("event: ")][-1] == "event: message_stop"


@pytest.mark.parametrize(
    "user_id",
    [
        "user_0f3c_account_5d1f_session_6f1c9a52-7e5f-4b53-9d0e-3a4c2f9b8d11",
        '{"device_id":"d","account_uuid":"","session_id":"6f1c9a52-7e5f-4b53-9d0e-3a4c2f9b8d11"}',
    ],
)
def test_claude_codes_session_is_the_session(way: Way, user_id: str) -> None:
    way.say("Hello.")
    client(way).messages.create(model="weir", max_tokens=5, messages=USER, metadata={"user_id": user_id})
    (record,) = way.proxy.records()
    assert (record.session_id, record.session_source) == (
        "6f1c9a52-7e5f-4b53-9d0e-3a4c2f9b8d11",
        SessionSource.DIALECT,
    )
    assert record.agent_ids["metadata.user_id"] == user_id


def test_claude_codes_billing_line_is_recorded_and_not_part_of_the_prompt(way: Way) -> None:
    way.say("One.", "Two.")
    line = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={};"
    history: Any = USER
    for checksum in ("fa690", "0aaa9"):
        system: Any = [{"type": "text", "text": line.format(checksum)}, {"type": "text", "text": "Be brief."}]
        answer = client(way).messages.create(model="weir", max_tokens=9, messages=history, system=system)
        history = [*history, {"role": "assistant", "content": answer.content}, {"role": "user", "content": "More"}]
    one, two = way.proxy.records()
    assert text_of(unpack_ids(one.prompt_ids).tolist()).startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert two.stitch is Stitch.BRIDGED
    assert [record.agent_ids["billing_line"][-6:] for record in (one, two)] == ["fa690;", "0aaa9;"]


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_a_session_key_is_taken_from_either_header(way: Way, header: str) -> None:
    way.say("Hello.")
    registered = way.proxy.control("POST", "/weir/sessions", {"session": f"by-{header}"}).json()
    key = {"api_key": registered["api_key"]} if header == "x-api-key" else {"auth_token": registered["api_key"]}
    sdk = client(way, **({"api_key": None} | key))
    sdk.messages.create(model="weir", max_tokens=5, messages=USER)
    (record,) = way.proxy.records()
    assert (record.session_id, record.session_source) == (f"by-{header}", SessionSource.KEY)


def test_models_are_listed_in_the_form_that_the_client_speaks(way: Way) -> None:
    sdk = client(way)
    (model,) = list(sdk.models.list())
    assert (model.id, model.type, model.display_name) == ("weir", "model", "weir")
    assert sdk.models.retrieve("weir").created_at.year >= 2025
    with pytest.raises(anthropic.NotFoundError):
        sdk.models.retrieve("nobody")
    assert [model.object for model in way.proxy.client().models.list()] == ["model"]
