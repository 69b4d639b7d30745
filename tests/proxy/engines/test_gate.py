"""The gate: calls in flight when it closes become one answer with a span before and a span after; new calls wait."""

import asyncio
import concurrent.futures
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support_scripted_engine import Script, logprob_of
from support_way import Way, ids_of, text_of

from weir.proxy.engines import gate as gate_module
from weir.proxy.engines.gate import Gate, PauseMode
from weir.store.records.call_record import CallRecord, FinishReason, VersionSpan, unpack_ids, unpack_logprobs

USER: Any = [{"role": "user", "content": "Hi"}]
ANSWER = "Hello there, you and you."


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(16) as executor:
        yield executor


def answer_text(way: Way, stream: bool, **options: Any) -> str:
    """One call's text, read to its end."""
    created = way.proxy.client().chat.completions.create(model="weir", messages=USER, stream=stream, **options)
    if not stream:
        return created.choices[0].message.content or ""
    return "".join(chunk.choices[0].delta.content or "" for chunk in created)


def state(way: Way) -> dict[str, Any]:
    found: dict[str, Any] = way.proxy.control("GET", "/weir/state").json()
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        threading.Event().wait(0.005)


def assert_continued(record: CallRecord, ids: list[int], cut: int) -> None:
    assert unpack_ids(record.output_ids).tolist() == ids
    assert unpack_logprobs(record.output_logprobs).tolist() == [
        logprob_of(n, i if i < cut else i - cut) for i, n in enumerate(ids)
    ]
    assert record.spans == (VersionSpan(0, cut, "1"), VersionSpan(cut, len(ids), "2"))
    assert len(set(record.engine_rids)) == 2
    assert record.finish is FinishReason.STOP
    assert record.held_us > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_in_flight_is_one_answer_with_two_version_spans(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor, stream: bool
) -> None:
    ids = ids_of(ANSWER)
    way.say(Script(ids=ids, version="1", cut="wait", cut_after=4), Script(ids=ids[4:], version="2"))
    answer = pool.submit(answer_text, way, stream, max_tokens=100, seed=3)
    way.engine.wait_waiting()
    assert way.proxy.control("POST", "/weir/pause").json() == {"gate": "closed", "in_flight": 1}
    way.engine.go_on("abort")
    wait_until(lambda: state(way)["held"] == 1)
    assert state(way) | {"gate": "closed", "in_flight": 0} == state(way)
    assert not answer.done()
    assert way.proxy.control("POST", "/weir/resume", {"weight_version": 2}).json() == {"gate": "open"}
    assert answer.result(120) == ANSWER
    (record,) = way.proxy.records()
    assert_continued(record, ids, 4)
    first, second = way.engine.requests
    assert second["input_ids"] == first["input_ids"] + ids[:4]
    assert second["sampling_params"]["max_new_tokens"] == 96
    assert first["sampling_params"]["sampling_seed"] != second["sampling_params"]["sampling_seed"]
    assert state(way)["announced_version"] == "2"


@pytest.mark.parametrize("stream", [False, True])
def test_a_new_call_waits_and_costs_the_engine_nothing(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor, stream: bool
) -> None:
    way.say(Script(ids=ids_of(ANSWER), version="2"))
    way.proxy.control("POST", "/weir/pause")
    answers = [pool.submit(answer_text, way, stream) for _ in range(5)]
    wait_until(lambda: state(way)["held"] == 5)
    assert way.engine.requests == []
    way.proxy.control("POST", "/weir/resume")
    assert [answer.result(120) for answer in answers] == [ANSWER] * 5
    assert all(record.held_us > 0 for record in way.proxy.records())


def test_many_updates_in_one_answer_leave_a_span_for_each(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor
) -> None:
    ids = ids_of(ANSWER)
    cuts = [Script(ids=ids[i:], version=str(i), cut="wait", cut_after=1) for i in range(4)]
    way.say(*cuts, Script(ids=ids[4:], version="4"))
    answer = pool.submit(answer_text, way, True)
    for _ in range(4):
        way.engine.wait_waiting()
        way.proxy.control("POST", "/weir/pause")
        way.engine.go_on("abort")
        wait_until(lambda: state(way)["held"] == 1)
        way.proxy.control("POST", "/weir/resume")
    assert answer.result(120) == ANSWER
    (record,) = way.proxy.records()
    assert record.spans == (*(VersionSpan(i, i + 1, str(i)) for i in range(4)), VersionSpan(4, len(ids), "4"))


def test_a_call_aborted_at_its_last_allowed_token_is_finished_by_length(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor
) -> None:
    ids = ids_of(ANSWER)
    way.say(Script(ids=ids, cut="wait", cut_after=3))
    answer = pool.submit(answer_text, way, False, max_tokens=3)
    way.engine.wait_waiting()
    way.proxy.control("POST", "/weir/pause")
    way.engine.go_on("abort")
    assert answer.result(120) == text_of(ids[:3])
    assert way.proxy.records()[0].finish is FinishReason.LENGTH
    assert len(way.engine.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_across_the_cut_still_ends_the_answer(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor, stream: bool
) -> None:
    ids = ids_of("one STOP two three four five")
    cut = next(i for i in range(len(ids)) if text_of(ids[:i]).endswith("ST"))
    way.say(Script(ids=ids, cut="wait", cut_after=cut), Script(ids=ids[cut:]))
    answer = pool.submit(answer_text, way, stream, stop=["STOP"])
    way.engine.wait_waiting()
    way.proxy.control("POST", "/weir/pause")
    way.engine.go_on("abort")
    wait_until(lambda: state(way)["held"] == 1)
    way.proxy.control("POST", "/weir/resume")
    assert answer.result(120) == "one "
    (record,) = way.proxy.records()
    assert (record.finish, record.finish_matched) == (FinishReason.STOP, "STOP")


def test_draining_lets_calls_in_flight_finish_first(way: Way, pool: concurrent.futures.ThreadPoolExecutor) -> None:
    way.say(Script(ids=ids_of(ANSWER), cut="wait", cut_after=2), Script(ids=ids_of(ANSWER)))
    first = pool.submit(answer_text, way, False)
    way.engine.wait_waiting()
    closing = pool.submit(way.proxy.control, "POST", "/weir/pause", {"mode": "drain", "limit_s": 20})
    wait_until(lambda: state(way)["gate"] == "closing")
    second = pool.submit(answer_text, way, False)
    wait_until(lambda: state(way)["held"] == 1)
    way.engine.go_on()
    assert closing.result(120).json() == {"gate": "closed", "in_flight": 0}
    assert first.result(120) == ANSWER
    assert not second.done()
    way.proxy.control("POST", "/weir/resume")
    assert second.result(120) == ANSWER
    assert [len(record.engine_rids) for record in way.proxy.records()] == [1, 1]


def test_draining_goes_over_to_continue_at_its_limit(way: Way, pool: concurrent.futures.ThreadPoolExecutor) -> None:
    way.say(Script(ids=ids_of(ANSWER), cut="wait", cut_after=2))
    first = pool.submit(answer_text, way, False)
    way.engine.wait_waiting()
    answer = way.proxy.control("POST", "/weir/pause", {"mode": "drain", "limit_s": 0.05})
    assert answer.json() == {"gate": "closed", "in_flight": 1}
    way.engine.go_on()
    assert first.result(120) == ANSWER
    way.proxy.control("POST", "/weir/resume")


def test_a_gate_that_stays_closed_opens_by_itself_and_says_so(open_way: Callable[..., Way]) -> None:
    way = open_way(gate_limit_s=0.1)
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    assert answer_text(way, False) == ANSWER
    assert state(way) | {"gate": "open", "opened_by_limit": True} == state(way)
    assert "weir_gate_expired 1.0" in httpx.get(way.proxy.url + "/metrics", timeout=120).text


def test_a_held_stream_is_kept_alive_with_comments(
    open_way: Callable[..., Way], pool: concurrent.futures.ThreadPoolExecutor
) -> None:
    way = open_way(keepalive_s=0.05)
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    body = {"model": "weir", "messages": USER, "stream": True}
    with httpx.stream("POST", way.proxy.url + "/v1/chat/completions", json=body, timeout=120) as response:
        parts = response.iter_text(len(": waiting\n\n"))
        assert response.status_code == 200
        assert next(parts) == ": waiting\n\n"
        assert next(parts) == ": waiting\n\n"
        way.proxy.control("POST", "/weir/resume")
        text = "".join(parts)
    assert '"content":"H' in text and text.endswith("data: [DONE]\n\n")
    way.proxy.control("POST", "/weir/pause")
    answer = pool.submit(answer_text, way, True)
    wait_until(lambda: state(way)["held"] == 1)
    threading.Event().wait(0.15)
    way.proxy.control("POST", "/weir/resume")
    assert answer.result(120) == ANSWER


def test_a_held_json_call_is_kept_alive_with_white_space(
    open_way: Callable[..., Way], pool: concurrent.futures.ThreadPoolExecutor
) -> None:
    way = open_way(keepalive_s=0.05)
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    sdk = pool.submit(answer_text, way, False)
    body = {"model": "weir", "messages": USER}
    with httpx.stream("POST", way.proxy.url + "/v1/chat/completions", json=body, timeout=120) as response:
        parts = response.iter_text(1)
        assert [next(parts), next(parts)] == [" ", " "]
        wait_until(lambda: state(way)["held"] == 2)
        way.proxy.control("POST", "/weir/resume")
        text = "".join(parts)
    assert json.loads(text)["choices"][0]["message"]["content"] == ANSWER
    assert sdk.result(120) == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_dies_while_the_gate_is_closed_is_waited_out(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor, stream: bool
) -> None:
    ids = ids_of(ANSWER)
    way.continue_after(Script(ids=ids, version="1", cut="wait", cut_after=4))
    answer = pool.submit(answer_text, way, stream)
    way.engine.wait_waiting()
    way.proxy.control("POST", "/weir/pause")
    way.engine.go_on("die")
    wait_until(lambda: state(way)["held"] == 1)
    way.proxy.control("POST", "/weir/resume")
    assert answer.result(120) == ANSWER
    (record,) = way.proxy.records()
    if stream and record.spans[0].label == "1":
        assert_continued(record, ids, record.spans[0].end)
    else:  # nothing was known of the lost piece
        assert record.spans == (VersionSpan(0, len(ids), "2"),)
        assert len(record.engine_rids) == 2


def test_tokens_that_come_close_together_are_streamed_together(open_way: Callable[..., Way]) -> None:
    way = open_way(stream_interval_ms=300)
    ids = ids_of(ANSWER * 4)
    way.say(Script(ids=ids, incremental=True))
    stream = way.proxy.client().chat.completions.create(model="weir", messages=USER, stream=True)
    texts = [text for chunk in stream if (text := chunk.choices[0].delta.content)]
    assert "".join(texts) == ANSWER * 4
    assert len(texts) < len(ids) / 2


def test_a_product_s_call_passes_a_gate_that_was_closed_to_all_others(
    way: Way, pool: concurrent.futures.ThreadPoolExecutor
) -> None:
    """By the header, or by the registered session's tag; a gate that was closed to all stays closed to it."""
    way.proxy.control("POST", "/weir/pause", {"serve_passes": True})
    way.say(Script(ids=ids_of(ANSWER), version="1"))
    agents_answer = pool.submit(answer_text, way, False)
    wait_until(lambda: state(way)["held"] == 1)
    assert answer_text(way, True, extra_headers={"x-weir-tags": "serve"}) == ANSWER
    session = way.proxy.control("POST", "/weir/sessions", {"tags": ["serve"]}).json()
    registered = way.proxy.client(api_key=session["api_key"]).chat.completions.create(model="weir", messages=USER)
    assert registered.choices[0].message.content == ANSWER
    assert not agents_answer.done() and state(way)["held"] == 1
    way.proxy.control("POST", "/weir/pause")
    held = pool.submit(answer_text, way, False, extra_headers={"x-weir-tags": "serve"})
    wait_until(lambda: state(way)["held"] == 2)
    way.proxy.control("POST", "/weir/pause", {"serve_passes": True})
    assert state(way)["serve_passes"] is False, "who closed it to all has not opened it"
    way.proxy.control("POST", "/weir/resume")
    assert agents_answer.result(120) == held.result(120) == ANSWER
    assert sorted(record.held_us > 0 for record in way.proxy.records()) == [False, False, True, True]


def test_a_lease_that_ends_while_the_process_stood_still_lasts_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals may be waiting to be read."""
    monkeypatch.setattr(gate_module, "LATE_S", 0.05)

    async def stand_still() -> None:
        abandoned = asyncio.Event()
        gate = Gate(600.0, on_abandoned=abandoned.set)
        await gate.close(PauseMode.CONTINUE, 1.0, lease_s=0.05)
        time.sleep(0.2)  # noqa: ASYNC251 (nothing of this loop runs)
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert not gate.is_abandoned
        await asyncio.wait_for(abandoned.wait(), 60)
        assert gate.is_abandoned and not gate.is_open
        gate.renew(600.0)
        gate.open_abandoned()
        assert not gate.is_open and gate.times_expired == 0, "whoever closed it is back"
        gate.open()
        gate.renew(600.0)
        assert gate.is_open

    asyncio.run(stand_still())
