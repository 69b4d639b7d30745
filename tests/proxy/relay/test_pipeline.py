"""Relayed calls: the host gets the agent's bytes, the agent gets the host's, and the record has the ids."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_host import PROMPT_IDS, Form, Said, ScriptedHost, logprob_of
from support_proxy import RunningProxy, running_proxy

from weir.proxy.errors import SetupError
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    Stitch,
    VersionSpan,
    unpack_ids,
    unpack_logprobs,
)

BODY = b'{ "model": "weir",\n  "messages": [{"content": "Hi \\u00fc", "role": "user"}], "temperature": 1.00, "n":1 }'
Open = Callable[..., tuple[ScriptedHost, RunningProxy]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """`opened(form, **proxy_settings)`: a host and a proxy at level passthrough in front of it."""
    closing: list[Callable[[], Any]] = []

    def start(
        form: Form, *, server_flags: bool = True, knows: tuple[str, ...] = (), **settings: Any
    ) -> tuple[ScriptedHost, RunningProxy]:
        host = ScriptedHost(form, server_flags=server_flags, knows=frozenset(knows))
        closing.append(host.stop)
        context = running_proxy(tmp_path / "store", None, host.url, **({"level": "passthrough"} | settings))
        proxy = context.__enter__()
        closing.append(lambda: context.__exit__(None, None, None))
        host.forget()
        return host, proxy

    yield start
    for close in reversed(closing):
        close()


def direct(host: ScriptedHost, body: bytes, path: str = "/v1/chat/completions") -> httpx.Response:
    """The same call without the proxy, on a host that adds nothing by itself."""
    host.server_flags = False
    try:
        return httpx.post(
            host.url + path, content=body, headers={"content-type": "application/json"}, trust_env=False, timeout=120
        )
    finally:
        host.server_flags = True


def with_fields(body: bytes, **fields: Any) -> bytes:
    return body.rstrip(b" }") + b"".join(f', "{n}" : {json.dumps(v)}'.encode() for n, v in fields.items()) + b"}"


def only(proxy: RunningProxy) -> CallRecord:
    (record,) = proxy.records()
    return record


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("form", "flags"), [("sglang", b""), ("vllm", b',"return_token_ids":true')])
@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True}}, {"logprobs": True}, {"user": "me"}])
def test_agent_and_host_see_what_they_would_see_without_us(
    opened: Open, form: Form, flags: bytes, more: dict[str, Any], stream: bool
) -> None:
    host, proxy = opened(form)
    body = with_fields(BODY, stream=stream, **more)
    answer = proxy.post("/v1/chat/completions?beta=true", body, headers={"content-type": "application/json"})
    sent = host.bodies[0]
    logprobs = b"" if "logprobs" in more else b',"logprobs":true'
    assert sent == body[:-1] + logprobs + flags + b"}"
    assert host.targets == ["/v1/chat/completions?beta=true"]
    alone = direct(host, body)
    assert answer.content == alone.content
    assert answer.headers["content-type"] == alone.headers["content-type"]
    record = only(proxy)
    assert record.request == body
    assert unpack_ids(record.prompt_ids).tolist() == PROMPT_IDS
    assert unpack_ids(record.output_ids).tolist() == Said().ids


@pytest.mark.parametrize("stream", [False, True])
def test_a_record_has_ids_logprobs_versions_and_the_message(opened: Open, stream: bool) -> None:
    host, proxy = opened("sglang")
    host.script = lambda _: Said(text="Grüße", finish="length")
    answer = proxy.post("/v1/chat/completions", with_fields(BODY, stream=stream, max_tokens=5))
    record = only(proxy)
    assert answer.headers["x-weir-call"] == record.call_id
    assert record.level is CaptureLevel.TOKENS
    assert record.dialect == "chat" and record.stream is stream
    assert unpack_ids(record.output_ids).tolist() == [ord(c) for c in "Grüße"]
    assert unpack_logprobs(record.output_logprobs).tolist() == [logprob_of(ord(c)) for c in "Grüße"]
    assert record.spans == (VersionSpan(0, 5, "1"),)
    assert record.finish is FinishReason.LENGTH
    assert json.loads(record.answer) == {"role": "assistant", "content": "Grüße"}
    assert record.sampling == {"temperature": 1.0, "n": 1, "max_tokens": 5}
    assert record.stitch is Stitch.NEW_ROOT and len(record.digest) == 16 and record.num_messages == 1


def test_an_override_changes_its_members_of_the_body_and_nothing_else(opened: Open) -> None:
    override = {"set": {"temperature": 0.7, "top_p": 0.5}, "drop": ["top_k", "min_p"]}
    host, proxy = opened("sglang", sampling=override)
    body = BODY.replace(b"{ ", b'{ "top_k" : 20 , ').replace(b'"n":1', b'"n":1, "top_k":3')
    answer = proxy.post("/v1/chat/completions", body)
    flagless = BODY.replace(b"1.00", b"0.7")[:-1] + b',"top_p":0.5,"logprobs":true}'
    assert host.bodies[0] == flagless
    assert answer.content == direct(host, BODY).content
    record = only(proxy)
    assert record.request == body
    assert record.sampling == {"temperature": 0.7, "top_p": 0.5, "n": 1}
    assert record.asked_sampling == {"temperature": 1.0, "top_p": None, "top_k": 3}


def test_prompt_logprobs_are_refused_where_the_host_makes_the_prompt(opened: Open) -> None:
    host, proxy = opened("sglang")
    refused = proxy.post("/v1/chat/completions", BODY, headers={"x-weir-prompt-logprobs": "0"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x-weir-prompt-logprobs")
    assert host.bodies == []
    with pytest.raises(SetupError, match="needs capture level tokens"):
        opened("sglang", prompt_logprobs=True)


WISHES: Any = {
    "reasoning_effort": "low",
    "verbosity": "high",
    "chat_template_kwargs": {"enable_thinking": False, "thinking": True, "own": 3},
}


@pytest.mark.parametrize("form", ["sglang", "vllm"])
@pytest.mark.parametrize(
    ("knows", "ignored"),
    [
        (
            (),
            {*WISHES, "chat_template_kwargs.enable_thinking", "chat_template_kwargs.thinking"}
            - {"chat_template_kwargs"},
        ),
        (("reasoning_effort", "chat_template_kwargs.thinking"), {"verbosity", "chat_template_kwargs.enable_thinking"}),
    ],
)
def test_wishes_that_reach_no_prompt_of_the_engine_are_named(
    opened: Open, form: Form, knows: tuple[str, ...], ignored: set[str]
) -> None:
    host, proxy = opened(form, knows=knows, assumed_version="1")
    body = with_fields(BODY, **WISHES)
    assert proxy.post("/v1/chat/completions", body).content == direct(host, body).content
    assert set(only(proxy).ignored_fields) == ignored


def test_nothing_is_called_ignored_of_a_host_that_shows_no_prompt(opened: Open) -> None:
    host, proxy = opened("openai", level="logprobs")
    host.script = lambda _: Said()
    proxy.post("/v1/chat/completions", BODY)
    body = with_fields(BODY, reasoning_effort="low")
    assert proxy.post("/v1/chat/completions", body).status_code == 400  # the host's own refusal
    assert [record.ignored_fields for record in proxy.records()] == [(), ()]


def test_images_pass_to_an_engine_that_renders_and_are_recorded_with_its_ids(opened: Open) -> None:
    with pytest.raises(SetupError, match=r"proxy\.images needs capture level tokens"):
        opened("sglang", images="placeholder")
    host, proxy = opened("sglang")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    question = {"role": "user", "content": [image, {"type": "text", "text": "A cat?"}]}
    body = json.dumps({"model": "weir", "messages": [question]}).encode()
    assert proxy.post("/v1/chat/completions", body).status_code == 200
    assert json.loads(host.bodies[0])["messages"] == [question]
    record = only(proxy)
    assert (record.level, record.ignored_fields) == (CaptureLevel.TOKENS, ())
    assert unpack_ids(record.prompt_ids).tolist() == PROMPT_IDS and record.request == body


def test_a_body_without_overridden_members_passes_as_it_came(opened: Open) -> None:
    host, proxy = opened("sglang", sampling={"rules": [{"session": "else*", "set": {"temperature": 0.7}}]})
    proxy.post("/v1/chat/completions", BODY)
    assert host.bodies[0] == BODY[:-1] + b',"logprobs":true}'
    assert only(proxy).asked_sampling == {}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", ["sglang", "vllm"])
def test_every_answer_of_a_request_is_a_record(opened: Open, form: Form, stream: bool) -> None:
    host, proxy = opened(form, assumed_version="1")
    body = with_fields(BODY.replace(b'"n":1', b'"n":3'), stream=stream)
    assert proxy.post("/v1/chat/completions", body).content == direct(host, body).content
    records = proxy.records()
    assert sorted(record.choice for record in records) == [0, 1, 2]
    assert len({record.request_id for record in records}) == 1 and len({record.call_id for record in records}) == 3
    assert {record.level for record in records} == {CaptureLevel.TOKENS}


@pytest.mark.parametrize("form", ["sglang", "vllm"])
@pytest.mark.parametrize("stream", [False, True])
def test_completions_are_relayed_where_their_ids_can_be_had(opened: Open, form: Form, stream: bool) -> None:
    host, proxy = opened(form, assumed_version="4")
    body = b'{"model":"weir","prompt":"Hi","stream":%s}' % (b"true" if stream else b"false")
    answer = proxy.post("/v1/completions", body)
    if form == "sglang":  # this scripted SGLang gives none there
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "below_capture_level"
        return
    assert answer.content == direct(host, body, "/v1/completions").content
    record = only(proxy)
    assert record.level is CaptureLevel.TOKENS and record.spans == (VersionSpan(0, 6, "assumed:4"),)


def test_sdk_turns_stay_in_one_session_without_a_name(opened: Open) -> None:
    _, proxy = opened("sglang")
    client = proxy.client()
    messages: Any = [{"role": "user", "content": "One"}]
    for question in ("Two", "Three"):
        given = client.chat.completions.create(model="weir", messages=messages).choices[0].message
        messages += [{"role": "assistant", "content": given.content}, {"role": "user", "content": question}]
    client.chat.completions.create(model="weir", messages=[{"role": "user", "content": "Another"}])
    first, second, other = proxy.records()
    assert first.session_id == second.session_id != other.session_id
    assert first.group_id == second.group_id != other.group_id
    assert second.session_source is SessionSource.INFERRED and second.stitch_call == first.call_id
    assert second.stitch is Stitch.RETOKENISED and second.stitch_differs_at == 3


def test_vllm_without_a_version_is_not_trained_on_unless_one_is_assumed(opened: Open) -> None:
    _, proxy = opened("vllm")
    proxy.post("/v1/chat/completions", BODY)
    record = only(proxy)
    assert record.level is CaptureLevel.LOGPROBS and len(record.output_ids) == 24
    assert 'weir_calls_lowered_total{reason="no_version"} 1.0' in metrics(proxy)


def test_a_logprob_that_the_host_left_out_lowers_the_level_and_is_counted(opened: Open) -> None:
    host, proxy = opened("sglang")
    host.script = lambda _: Said(drop_logprob_at=2)
    proxy.post("/v1/chat/completions", with_fields(BODY, stream=True))
    record = only(proxy)
    assert record.level is CaptureLevel.TEXT and not record.output_logprobs
    assert unpack_ids(record.output_ids).tolist() == Said().ids
    assert 'weir_calls_lowered_total{reason="logprobs_missing"} 1.0' in metrics(proxy)


def metrics(proxy: RunningProxy) -> str:
    return httpx.get(proxy.url + "/metrics", trust_env=False, timeout=120).text


@pytest.mark.parametrize("stream", [False, True])
def test_weights_that_change_under_a_call_lower_it_unless_the_answer_says_where(opened: Open, stream: bool) -> None:
    host, proxy = opened("sglang")
    host.script = lambda _: Said(cut="wait", cut_after=2)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(proxy.post, "/v1/chat/completions", with_fields(BODY, stream=stream))
        host.wait_waiting()
        paused = proxy.control("POST", "/weir/pause", {"limit_s": 0.01}).json()
        assert paused == {"gate": "closed", "in_flight": 1, "engine_pause": "retract"}
        host.version = "2"
        proxy.control("POST", "/weir/resume")
        host.go_on()
        assert call.result().status_code == 200
    record = only(proxy)
    assert record.level is (CaptureLevel.LOGPROBS if stream else CaptureLevel.TOKENS)
    assert record.spans == (() if stream else (VersionSpan(0, 6, "1"),))
    host.script = lambda _: Said(version="2")
    proxy.post("/v1/chat/completions", with_fields(BODY, stream=True))
    assert proxy.records()[-1].spans == (VersionSpan(0, 6, "2"),)


def test_a_call_in_flight_drains_before_the_gate_closes_and_keeps_its_version(opened: Open) -> None:
    host, proxy = opened("sglang")
    host.script = lambda _: Said(cut="wait", cut_after=2)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        call = pool.submit(proxy.post, "/v1/chat/completions", with_fields(BODY, stream=True))
        host.wait_waiting()
        pause = pool.submit(proxy.control, "POST", "/weir/pause")
        while proxy.proxy.gate.is_open:
            pass
        host.go_on()
        assert pause.result().json() == {"gate": "closed", "in_flight": 0, "engine_pause": "retract"}
        call.result()
    assert only(proxy).spans == (VersionSpan(0, 6, "1"),)


def test_a_held_stream_is_kept_alive_and_then_answered_as_it_is(opened: Open) -> None:
    host, proxy = opened("sglang", keepalive_s=0.02)
    body = with_fields(BODY, stream=True)
    proxy.control("POST", "/weir/pause")
    with httpx.stream("POST", proxy.url + "/v1/chat/completions", content=body, trust_env=False, timeout=60) as answer:
        sign = b": waiting\n\n"
        parts = answer.iter_raw(len(sign))
        assert next(parts) == sign
        proxy.control("POST", "/weir/resume")
        rest = b"".join(parts)
    assert rest.replace(b": waiting\n\n", b"") == direct(host, body).content
    assert only(proxy).held_us > 0


def test_errors_of_the_host_pass_as_they_are_and_are_recorded_without_the_key(opened: Open) -> None:
    host, proxy = opened("sglang", upstream_api_key="sk-secret-of-the-host")
    host.script = lambda _: Said(status=429)
    answer = proxy.post("/v1/chat/completions", BODY, headers={"authorization": "Bearer agents-own"})
    assert answer.status_code == 429 and answer.headers["x-quota"] == "3"
    assert answer.json() == {"error": {"message": "scripted, Bearer ***"}}
    assert host.headers[0]["authorization"] == "Bearer sk-secret-of-the-host"
    record = only(proxy)
    assert record.finish is FinishReason.ERROR and "429" in (record.error or "")
    assert b"secret" not in repr(record).encode() and b"agents-own" not in repr(record).encode()


def test_a_session_key_of_ours_names_the_session_and_goes_no_further(opened: Open) -> None:
    host, proxy = opened("sglang")
    registered = proxy.control("POST", "/weir/sessions", {"session": "mine"}).json()
    openai.OpenAI(base_url=proxy.url + "/v1", api_key=registered["api_key"]).chat.completions.create(
        model="weir", messages=[{"role": "user", "content": "Hi"}]
    )
    assert "authorization" not in host.headers[0]
    assert only(proxy).session_id == "mine"
    proxy.post("/v1/chat/completions", BODY, headers={"authorization": "Bearer agents-own"})
    assert host.headers[1]["authorization"] == "Bearer agents-own"


@pytest.mark.parametrize("stream", [False, True])
def test_a_host_that_dies_ends_the_call_with_an_error_and_a_record(opened: Open, stream: bool) -> None:
    host, proxy = opened("sglang")
    host.script = lambda _: Said(cut="die", cut_after=2)
    client = proxy.client()
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="weir", messages=[{"role": "user", "content": "x"}], stream=stream))  # type: ignore[call-overload]
    record = only(proxy)
    assert record.finish is FinishReason.ERROR and record.error
    assert (json.loads(record.answer)["content"] == "He") if stream else record.answer == b""


def test_a_client_that_leaves_frees_the_host_and_the_partial_answer_is_recorded(opened: Open) -> None:
    host, proxy = opened("sglang")
    host.script = lambda _: Said(cut="wait", cut_after=3)
    body = with_fields(BODY, stream=True)
    with httpx.stream("POST", proxy.url + "/v1/chat/completions", content=body, trust_env=False, timeout=120) as answer:
        parts = answer.iter_raw()
        seen = b""
        while seen.count(b"content") < 4:
            seen += next(parts)
    host.wait_left()
    while not proxy.records():
        pass
    record = only(proxy)
    assert record.finish is FinishReason.DISCONNECT and json.loads(record.answer)["content"] == "Hel"
    assert record.level is not CaptureLevel.TOKENS


def test_a_body_that_cannot_be_read_is_the_hosts_business(opened: Open) -> None:
    host, proxy = opened("openai", level="text")
    host.script = lambda _: Said(status=422)
    answer = proxy.post("/v1/chat/completions", b'{"model": "weir", "messages": "odd", "tools": 3, "metadata": []}')
    assert answer.status_code == 422
    assert only(proxy).finish is FinishReason.ERROR


@pytest.mark.parametrize("stream", [False, True])
def test_messages_are_recorded_as_text_where_that_is_allowed(opened: Open, stream: bool) -> None:
    host, proxy = opened("sglang", below_level="record")
    body = b'{"model":"weir","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"stream":%s}'
    body = body % (b"true" if stream else b"false")
    answer = proxy.post("/v1/messages", body)
    assert answer.content == direct(host, body, "/v1/messages").content
    assert host.bodies[0] == body
    record = only(proxy)
    assert record.level is CaptureLevel.TEXT and record.dialect == "messages"
    assert json.loads(record.answer)["content"] == "Hello." and record.finish is FinishReason.STOP
    assert 'weir_calls_lowered_total{reason="route"} 1.0' in metrics(proxy)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_any_host_are_recorded_and_not_shown(opened: Open, stream: bool) -> None:
    host, proxy = opened("openai", level="auto")
    assert proxy.control("GET", "/weir/state").json()["level"] == "logprobs"
    body = b'{"model":"weir","messages":[{"role":"user","content":"Hi"}],"stream":%s}' % (
        b"true" if stream else b"false"
    )
    assert proxy.post("/v1/chat/completions", body).content == direct(host, body).content
    record = only(proxy)
    assert record.level is CaptureLevel.LOGPROBS
    assert unpack_logprobs(record.output_logprobs).tolist() == [logprob_of(n) for n in Said().ids]


def test_a_level_that_cannot_be_had_ends_the_start(opened: Open) -> None:
    with pytest.raises(SetupError, match=r"name no token ids.*--return-input-ids"):
        opened("openai")


def test_models_are_those_of_the_host(opened: Open) -> None:
    _, proxy = opened("vllm")
    assert [model.owned_by for model in proxy.client().models.list()] == ["scripted"]
    assert proxy.post("/v1/embeddings", {}).status_code == 404
