"""Chat completions over real sockets: the openai SDK → proxy → sglang-router → scripted engine → record."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from support_scripted_engine import Script, logprob_of
from support_way import Way, ids_of, text_of

from weir.store.records.call_record import (
    CaptureLevel,
    FinishReason,
    SessionSource,
    Stitch,
    VersionSpan,
    unpack_ids,
    unpack_logprobs,
)

USER: Any = [{"role": "user", "content": "Hi"}]
PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
    }
]
CALLS = (
    'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "é"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_answered_and_recorded_token_for_token(way: Way, stream: bool) -> None:
    ids = ids_of("Hello there.")
    way.say(Script(ids=ids, version="17", matched=ids[-1], tokens_per_chunk=4))
    with way.proxy.client().chat.completions.with_streaming_response.create(
        model="weir", messages=USER, stream=stream, max_tokens=50, temperature=0.5
    ) as response:
        headers = response.headers
        response.read()
    (record,) = way.proxy.records()
    assert text_of(unpack_ids(record.prompt_ids).tolist()) == PROMPT
    assert unpack_ids(record.output_ids).tolist() == ids
    assert unpack_logprobs(record.output_logprobs).tolist() == [logprob_of(n, i) for i, n in enumerate(ids)]
    assert record.spans == (VersionSpan(0, len(ids), "17"),)
    assert (record.finish, record.finish_matched, record.stream) == (FinishReason.STOP, ids[-1], stream)
    assert (record.level, record.dialect, record.model) == (CaptureLevel.TOKENS, "chat", "weir")
    assert (record.stitch, record.session_source) == (Stitch.NEW_ROOT, SessionSource.INFERRED)
    assert json.loads(record.answer) == {"role": "assistant", "content": "Hello there."}
    assert json.loads(record.request)["messages"] == USER
    assert record.sampling == {"max_new_tokens": 50, "temperature": 0.5, "top_p": 1.0, "top_k": -1}
    assert record.engine_rids == (way.engine.requests[-1]["rid"],)
    assert record.started_us <= (record.first_token_us or 0) <= record.finished_us
    assert headers["x-weir-call"] == record.call_id
    assert headers["x-weir-session"] == record.session_id
    assert headers["x-weir-version"] == "17"


def test_the_engine_is_asked_for_exact_ids_logprobs_and_the_full_distribution(way: Way) -> None:
    way.say("Hello.")
    way.proxy.client().chat.completions.create(model="weir", messages=USER)
    asked = way.engine.requests[-1]
    assert text_of(asked["input_ids"]) == PROMPT
    assert (asked["return_logprob"], asked["logprob_start_len"], asked["stream"]) == (True, -1, False)
    params = asked["sampling_params"]
    assert (params["temperature"], params["top_p"], params["top_k"]) == (1.0, 1.0, -1)
    assert params["max_new_tokens"] == 4096 - len(asked["input_ids"])


def test_sampling_reaches_the_engine_through_the_router(way: Way) -> None:
    way.say("Hello.")
    way.proxy.client().chat.completions.create(
        model="weir",
        messages=USER,
        seed=5,
        top_p=0.5,
        stop=["x"],
        frequency_penalty=0.25,
        max_completion_tokens=7,
        extra_body={"top_k": 3, "min_p": 0.5},
    )
    params = way.engine.requests[-1]["sampling_params"]
    wanted = {"sampling_seed": 5, "top_p": 0.5, "stop": ["x"], "frequency_penalty": 0.25, "max_new_tokens": 7}
    assert {name: params[name] for name in (*wanted, "top_k", "min_p")} == wanted | {"top_k": 3, "min_p": 0.5}


def test_an_answer_has_the_form_of_openai_and_nothing_more(way: Way) -> None:
    way.say("Hello.")
    answer = way.proxy.post("/v1/chat/completions", {"model": "weir", "messages": USER}).json()
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    (choice,) = answer["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello."},
        "logprobs": None,
        "finish_reason": "stop",
    }
    output = len(ids_of("Hello."))
    prompt = answer["usage"]["prompt_tokens"]
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def events(way: Way, **fields: Any) -> list[Any]:
    body = {"model": "weir", "messages": USER, "stream": True} | fields
    text = way.proxy.post("/v1/chat/completions", body).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_stream_has_no_chunk_that_was_not_asked_for(way: Way) -> None:
    way.say("Hello there.")
    chunks = events(way)
    assert all(len(chunk["choices"]) == 1 and "usage" not in chunk for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello there."
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_text_is_streamed_before_the_engine_has_said_all(way: Way) -> None:
    ids = ids_of("Hello there, you.")
    way.say(Script(ids=ids, cut="wait", cut_after=6))
    content = ""
    for chunk in way.proxy.client().chat.completions.create(model="weir", messages=USER, stream=True):
        piece = chunk.choices[0].delta.content or ""
        if piece and not content:
            way.engine.wait_waiting()
            way.engine.go_on()  # nothing more would come without this
        content += piece
    assert content == "Hello there, you."


def test_usage_comes_last_in_a_stream_that_asks_for_it(way: Way) -> None:
    way.say("Hello.")
    *chunks, last = events(way, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(ids_of("Hello."))


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_is_told_apart(way: Way, stream: bool) -> None:
    way.say("<think>\nShort.\n</think>\n\nHello.")
    client = way.proxy.client()
    if stream:
        deltas = [c.choices[0].delta for c in client.chat.completions.create(model="weir", messages=USER, stream=True)]
        reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        content = "".join(delta.content or "" for delta in deltas)
    else:
        message = client.chat.completions.create(model="weir", messages=USER).choices[0].message
        reasoning, content = message.reasoning_content, message.content or ""  # type: ignore[attr-defined]
    assert (reasoning, content) == ("Short.", "Hello.")


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_reach_the_sdk(way: Way, stream: bool) -> None:
    way.say(CALLS)
    client = way.proxy.client()
    if stream:
        with client.chat.completions.stream(model="weir", messages=USER, tools=TOOLS) as parts:
            choice: Any = parts.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(model="weir", messages=USER, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    calls = choice.message.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("add", {"a": 1, "b": "é"}),
        ("add", {}),
    ]
    assert len({call.id for call in calls}) == 2
    assert "# Tools" in text_of(way.engine.requests[-1]["input_ids"])


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (CALLS, {"tools": TOOLS, "tool_choice": "none"}),
        (CALLS, {}),
        ("Let me see.\n<tool_call>\nnot json\n</tool_call>", {"tools": TOOLS}),
    ],
)
def test_what_is_no_tool_call_for_the_agent_is_text(way: Way, text: str, options: dict[str, Any]) -> None:
    way.say(text)
    choice = way.proxy.client().chat.completions.create(model="weir", messages=USER, **options).choices[0]
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert choice.message.content == text
    streamed = "".join(c["choices"][0]["delta"].get("content", "") for c in events(way, **options))
    assert streamed == text


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_are_those_of_the_tokens(way: Way, stream: bool) -> None:
    way.say("Hello there.")
    ids = ids_of("Hello there.")[:-1]
    if stream:
        chunks = [chunk["choices"][0] for chunk in events(way, logprobs=True)]
        tokens = [token for chunk in chunks if chunk["logprobs"] for token in chunk["logprobs"]["content"]]
    else:
        body = {"model": "weir", "messages": USER, "logprobs": True}
        tokens = way.proxy.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    assert [(t["token"], t["logprob"], t["bytes"]) for t in tokens] == [
        (text_of([n]), logprob_of(n, i), list(text_of([n]).encode())) for i, n in enumerate(ids)
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_cut_by_max_tokens_says_length(way: Way, stream: bool) -> None:
    way.say("Hello there, you.")
    ids = ids_of("Hello there, you.")[:5]
    if stream:
        chunks = events(way, max_tokens=5)
        reason = chunks[-1]["choices"][0]["finish_reason"]
        content = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    else:
        choice = way.proxy.client().chat.completions.create(model="weir", messages=USER, max_tokens=5).choices[0]
        reason, content = choice.finish_reason, choice.message.content
    assert (reason, content) == ("length", text_of(ids))
    assert way.proxy.records()[-1].finish is FinishReason.LENGTH


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_cut_from_the_answer_and_kept_in_the_record(way: Way, stream: bool) -> None:
    ids = ids_of("one two STOP")[:-1]
    way.say(Script(ids=ids, matched="STOP"))
    if stream:
        content = "".join(c["choices"][0]["delta"].get("content", "") for c in events(way, stop="STOP"))
    else:
        choice = way.proxy.client().chat.completions.create(model="weir", messages=USER, stop="STOP").choices[0]
        content = choice.message.content or ""
    assert content == "one two "
    record = way.proxy.records()[-1]
    assert (record.finish, record.finish_matched) == (FinishReason.STOP, "STOP")
    assert unpack_ids(record.output_ids).tolist() == ids


@pytest.mark.parametrize("incremental", [False, True])
def test_both_forms_of_engine_streams_are_captured(way: Way, incremental: bool) -> None:
    ids = ids_of("A few tokens, more than one chunk.")
    way.say(Script(ids=ids, incremental=incremental, tokens_per_chunk=3, spans=[("4", 0, 2), ("5", 2, len(ids))]))
    assert events(way)
    (record,) = way.proxy.records()
    assert unpack_ids(record.output_ids).tolist() == ids
    assert unpack_logprobs(record.output_logprobs).tolist() == [logprob_of(n, i) for i, n in enumerate(ids)]
    assert record.spans == (VersionSpan(0, 2, "4"), VersionSpan(2, len(ids), "5"))


def test_models_are_listed_with_their_aliases(open_way: Callable[..., Way]) -> None:
    way = open_way(model_aliases=("gpt-5",))
    client = way.proxy.client()
    assert [model.id for model in client.models.list()] == ["weir", "gpt-5"]
    assert client.models.retrieve("gpt-5").id == "gpt-5"
    way.say("Hello.")
    assert client.chat.completions.create(model="gpt-5", messages=USER).model == "gpt-5"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", {"model": "gpt-5", "messages": USER}, 404, "model_not_found"),
        ("POST", "/v1/chat/completions", b'{"model": ', 400, "invalid_json"),
        ("POST", "/v1/chat/completions", {"model": "weir", "messages": USER, "n": 0}, 400, "invalid_value"),
        (
            "POST",
            "/v1/chat/completions",
            {"model": "weir", "messages": [{"role": "user", "content": "word " * 5000}]},
            400,
            "context_length_exceeded",
        ),
        ("POST", "/v1/chat/completions", b" " * 20_000, 413, "request_too_large"),
        ("GET", "/v1/chat/completions", None, 405, "not_found"),
        ("POST", "/v1/embeddings", {}, 404, "not_found"),
        ("GET", "/v1/models/gpt-5", None, 404, "model_not_found"),
        ("POST", "/s/a%00b/v1/chat/completions", {"model": "weir", "messages": USER}, 400, None),
    ],
)
def test_bad_input_gets_an_openai_error_and_the_next_call_works(
    open_way: Callable[..., Way], method: str, path: str, body: Any, status: int, code: str | None
) -> None:
    way = open_way(max_request_bytes=40_000 if code == "context_length_exceeded" else 16_000)
    way.say("Hello.")
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = httpx.request(method, way.proxy.url + path, trust_env=False, **content, timeout=120)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert way.proxy.records() == []
    assert (
        way.proxy.client().chat.completions.create(model="weir", messages=USER).choices[0].message.content == "Hello."
    )


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    def tokenise(*_: Any) -> list[int]:
        raise AssertionError("a hopeless prompt was tokenised")

    monkeypatch.setattr(way.proxy.proxy.rendering, "render", tokenise)
    body = {"model": "weir", "messages": [{"role": "user", "content": "word " * 400_000}]}
    answer = way.proxy.post("/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_ids_are_kept_as_int32_and_logprobs_as_float32(way: Way) -> None:
    way.say("Hello.")
    way.proxy.client().chat.completions.create(model="weir", messages=USER)
    (record,) = way.proxy.records()
    assert np.frombuffer(record.output_ids, "<i4").tolist() == ids_of("Hello.")
    assert len(record.output_logprobs) == len(record.output_ids)
