"""Failures outside the proxy: dead or aborting engines, a router without workers, a full disk, a client that leaves."""

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_proxy import running_proxy
from support_router import running_router
from support_scripted_engine import Script, ScriptedEngine, logprob_of
from support_way import Way, ids_of

from weir.store.records.call_record import FinishReason, VersionSpan, unpack_ids, unpack_logprobs

USER: Any = [{"role": "user", "content": "Hi"}]
ANSWER = "Hello there, you."
DEAD = "http://127.0.0.1:9"


def create(way: Way, **options: Any) -> Any:
    return way.proxy.client().chat.completions.create(model="weir", messages=USER, **options)


def text_in(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_an_engine_that_dies_in_mid_stream_is_replaced_and_the_answer_goes_on(way: Way) -> None:
    ids = ids_of(ANSWER)
    way.continue_after(Script(ids=ids, version="1", cut="wait", cut_after=4))
    stream = create(way, stream=True)
    shown = ""
    while len(shown) < 2:
        shown += next(stream).choices[0].delta.content or ""
    way.engine.wait_waiting()
    way.engine.go_on("die")
    assert shown + text_in(stream) == ANSWER
    (record,) = way.proxy.records()
    cut = record.spans[0].end
    assert 1 <= cut <= 4
    assert unpack_ids(record.output_ids).tolist() == ids
    assert unpack_logprobs(record.output_logprobs).tolist() == [
        logprob_of(n, i if i < cut else i - cut) for i, n in enumerate(ids)
    ]
    assert record.spans == (VersionSpan(0, cut, "1"), VersionSpan(cut, len(ids), "2"))
    assert way.engine.requests[1]["input_ids"] == way.engine.requests[0]["input_ids"] + ids[:cut]
    assert [body["rid"] for body in way.engine.requests] == list(record.engine_rids)


def test_an_engine_that_dies_before_a_json_answer_is_replaced_from_the_start(way: Way) -> None:
    ids = ids_of(ANSWER)
    way.say(Script(ids=ids, cut="die", cut_after=4), Script(ids=ids))
    assert create(way).choices[0].message.content == ANSWER
    (record,) = way.proxy.records()
    assert unpack_ids(record.output_ids).tolist() == ids
    assert len(record.engine_rids) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_kills_every_engine_is_given_up_after_a_few(open_way: Callable[..., Way], stream: bool) -> None:
    way = open_way(lost_retries=2)
    way.say(Script(ids=ids_of(ANSWER), cut="die", cut_after=1))
    with pytest.raises(openai.APIError) as caught:
        text_in(create(way, stream=True)) if stream else create(way)
    assert caught.value.code == "upstream_failed"
    assert len(way.engine.requests) == 3
    (record,) = way.proxy.records()
    assert record.finish is FinishReason.ERROR
    assert "engines failed during the call, 3 times" in (record.error or "")
    first = ids_of(ANSWER)[0]
    assert unpack_ids(record.output_ids).tolist() in ([[first] * n for n in range(4)] if stream else [[]])
    way.say(ANSWER)
    assert create(way).choices[0].message.content == ANSWER


def test_before_the_first_token_an_error_has_its_status(open_way: Callable[..., Way]) -> None:
    way = open_way(lost_retries=1)
    way.say(Script(ids=ids_of(ANSWER), status=500))
    answer = way.proxy.post("/v1/chat/completions", {"model": "weir", "messages": USER, "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")
    assert float(answer.headers["retry-after"]) > 0
    assert len(way.engine.requests) == 2


def test_what_an_engine_refuses_is_the_agents_error_and_not_repeated(way: Way) -> None:
    way.say(Script(ids=[], status=400))
    with pytest.raises(openai.BadRequestError, match="scripted refusal"):
        create(way)
    assert len(way.engine.requests) == 1


FORM = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("route", "body", "field"),
    [
        (
            "/v1/chat/completions",
            {
                "messages": USER,
                "response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": FORM}},
            },
            "response_format",
        ),
        (
            "/v1/responses",
            {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "f", "schema": FORM}}},
            "text.format",
        ),
        ("/v1/chat/completions", {"messages": USER}, None),
    ],
)
def test_a_schema_that_an_engine_refuses_is_named_by_the_agents_own_field(
    way: Way, route: str, body: dict[str, Any], field: str | None
) -> None:
    way.say(Script(ids=[], status=400))
    answer = way.proxy.post(route, {"model": "weir"} | body)
    assert answer.status_code == 400
    assert (answer.json()["error"]["param"], "scripted refusal" in answer.text) == (field, True)


def test_aborts_while_the_gate_is_open_are_continued_up_to_a_bound(open_way: Callable[..., Way]) -> None:
    way = open_way(abort_retries=2)
    ids = ids_of(ANSWER)
    way.say(
        Script(ids=ids, cut="abort", cut_after=2),
        Script(ids=ids[2:], cut="abort", cut_after=0),
        Script(ids=ids[2:]),
    )
    assert create(way).choices[0].message.content == ANSWER
    way.say(Script(ids=ids, cut="abort", cut_after=0))
    with pytest.raises(openai.APIStatusError, match="aborted the call 3 times"):
        create(way)


@pytest.mark.parametrize("kind", ["sglang-router", "smg"])
def test_a_router_without_workers_gives_503_and_recovers_with_them(
    kind: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    engine = ScriptedEngine(lambda _: Script(ids=ids_of(ANSWER))).start()
    settings: dict[str, Any] = {"refused_limit_s": 0.05}
    with (
        running_router([engine.url], tmp_path, kind=kind) as router,
        running_proxy(tmp_path / "store", tiny_model_dir, router.url, **settings) as proxy,
    ):
        way = Way(engine=engine, router=router, proxy=proxy)
        workers = httpx.get(router.url + "/workers", timeout=120).json()["workers"]
        httpx.delete(f"{router.url}/workers/{workers[0]['id']}", timeout=120)
        while httpx.get(router.url + "/workers", timeout=120).json()["workers"]:
            threading.Event().wait(0.02)
        assert httpx.get(proxy.url + "/readyz", timeout=120).status_code == 503
        for stream in (False, True):
            body = {"model": "weir", "messages": USER, "stream": stream}
            answer = proxy.post("/v1/chat/completions", body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_engine_available")
            assert answer.headers["retry-after"] == "1"
        httpx.post(router.url + "/workers", json={"url": engine.url}, timeout=120)
        while httpx.get(proxy.url + "/readyz", timeout=120).status_code != 200:
            threading.Event().wait(0.02)
        assert create(way).choices[0].message.content == ANSWER
        assert [record.finish for record in proxy.records()] == [FinishReason.ERROR] * 2 + [FinishReason.STOP]
    engine.stop()


def test_a_router_that_is_not_there_gives_503(tiny_model_dir: Path, tmp_path: Path) -> None:
    with running_proxy(tmp_path / "store", tiny_model_dir, DEAD, refused_limit_s=0.05) as proxy:
        answer = proxy.post("/v1/chat/completions", {"model": "weir", "messages": USER})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_engine_available")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While the event is set, writes to the log fail with a full disk."""
    full = threading.Event()
    real = {name: getattr(os, name) for name in ("pwrite", "posix_fallocate")}

    def refusing(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if full.is_set():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real[name](*arguments)

        return call

    for name in real:
        monkeypatch.setattr(os, name, refusing(name))
    yield full


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_recorded_is_not_given_and_the_next_one_is(
    way: Way, full_disk: threading.Event, stream: bool
) -> None:
    way.say(ANSWER)
    create(way)
    full_disk.set()
    body = {"model": "weir", "messages": USER, "stream": stream}
    answer = way.proxy.post("/v1/chat/completions", body)
    if stream:
        last = answer.text.strip().split("\n\n")[-1]
        error = json.loads(last.removeprefix("data: "))["error"]
        assert 'finish_reason":"stop' not in answer.text
    else:
        assert answer.status_code == 503
        error = answer.json()["error"]
    assert error["code"] == "not_recorded"
    assert "No space left on device" in error["message"]
    assert "No space left on device" in way.proxy.control("GET", "/weir/state").json()["record_failure"]
    assert "weir_record_failures 1.0" in httpx.get(way.proxy.url + "/metrics", timeout=120).text
    assert httpx.get(way.proxy.url + "/readyz", timeout=120).status_code == 503
    full_disk.clear()
    while httpx.get(way.proxy.url + "/readyz", timeout=120).status_code == 503:
        threading.Event().wait(0.01)
    assert way.proxy.control("GET", "/weir/state").json()["record_failure"] is None
    assert create(way).choices[0].message.content == ANSWER
    assert len(way.proxy.records()) == 2


def test_a_store_that_may_lose_records_answers_and_counts_them(
    open_way: Callable[..., Way], full_disk: threading.Event
) -> None:
    way = open_way(store={"on_store_failure": "answer"})
    way.say(ANSWER)
    full_disk.set()
    assert create(way).choices[0].message.content == ANSWER
    assert text_in(create(way, stream=True)) == ANSWER
    assert way.proxy.control("GET", "/weir/state").json()["records_lost"] == 2
    assert "weir_records_lost_total 2.0" in httpx.get(way.proxy.url + "/metrics", timeout=120).text


def test_a_client_that_leaves_in_mid_stream_stops_the_engine_and_leaves_a_partial_record(way: Way) -> None:
    ids = ids_of("word " * 1500)
    way.say(Script(ids=ids, version="6", cut="wait", cut_after=5, incremental=True))
    with way.proxy.client().chat.completions.create(model="weir", messages=USER, stream=True) as stream:
        next(iter(stream))
        way.engine.wait_waiting()
    while way.proxy.control("GET", "/weir/state").json()["in_flight"]:
        threading.Event().wait(0.01)
    way.engine.go_on()  # routers notice that a stream's client left when they next have something for it
    way.engine.wait_left()
    while not way.proxy.records():
        threading.Event().wait(0.01)
    (record,) = way.proxy.records()
    assert record.finish is FinishReason.DISCONNECT
    got = unpack_ids(record.output_ids).tolist()
    assert got == ids[: len(got)] and 1 <= len(got) <= 5
    assert unpack_logprobs(record.output_logprobs).tolist() == [logprob_of(n, i) for i, n in enumerate(got)]
    assert record.spans == (VersionSpan(0, len(got), "6"),)
    assert way.proxy.control("GET", "/weir/state").json()["in_flight"] == 0


def test_a_client_that_leaves_before_a_json_answer_stops_the_engine(way: Way) -> None:
    way.say(Script(ids=ids_of(ANSWER), cut="wait", cut_after=5))
    with pytest.raises(openai.APITimeoutError):
        way.proxy.client(timeout=0.3).chat.completions.create(model="weir", messages=USER)
    way.engine.wait_left()
    while not way.proxy.records():
        threading.Event().wait(0.01)
    (record,) = way.proxy.records()
    assert (record.finish, record.output_ids) == (FinishReason.DISCONNECT, b"")


def test_a_client_that_leaves_while_held_costs_the_engine_nothing(way: Way) -> None:
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    with pytest.raises(openai.APITimeoutError):
        way.proxy.client(timeout=0.2).chat.completions.create(model="weir", messages=USER)
    while way.proxy.control("GET", "/weir/state").json()["held"]:
        threading.Event().wait(0.01)
    way.proxy.control("POST", "/weir/resume")
    assert create(way).choices[0].message.content == ANSWER
    assert len(way.engine.requests) == 1
    assert [record.finish for record in way.proxy.records()] == [FinishReason.DISCONNECT, FinishReason.STOP]
