"""Real SDK clients that are held, or wait for their turn, for longer than their own read timeout."""

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

import anthropic
import openai
from support_scripted_engine import Script
from support_way import Way, ids_of

ANSWER = "Hello there, you."
READ_TIMEOUT_S, HELD_S, KEEPALIVE_S = 4.0, 6.0, 0.2
MESSAGES: Any = [{"role": "user", "content": "Hi"}]
OPENAI: Any = {"api_key": "agent", "max_retries": 0, "timeout": openai.Timeout(60.0, read=READ_TIMEOUT_S)}
ANTHROPIC: Any = {"api_key": "agent", "max_retries": 0, "timeout": anthropic.Timeout(60.0, read=READ_TIMEOUT_S)}


def openai_streamed(url: str) -> str:
    with openai.OpenAI(base_url=url + "/v1", **OPENAI) as client:
        stream = client.chat.completions.create(model="weir", messages=MESSAGES, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def openai_whole(url: str) -> str:
    with openai.OpenAI(base_url=url + "/v1", **OPENAI) as client:
        return client.chat.completions.create(model="weir", messages=MESSAGES).choices[0].message.content or ""


def responses_streamed(url: str) -> str:
    with openai.OpenAI(base_url=url + "/v1", **OPENAI) as client:
        events = client.responses.create(model="weir", input="Hi", stream=True)
        return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def anthropic_streamed(url: str) -> str:
    with (
        anthropic.Anthropic(base_url=url, **ANTHROPIC) as client,
        client.messages.stream(model="weir", max_tokens=64, messages=MESSAGES) as stream,
    ):
        return stream.get_final_text()


def anthropic_whole(url: str) -> str:
    with anthropic.Anthropic(base_url=url, **ANTHROPIC) as client:
        block: Any = client.messages.create(model="weir", max_tokens=64, messages=MESSAGES).content[0]
        return str(block.text)


CLIENTS = [openai_streamed, openai_whole, responses_streamed, anthropic_streamed, anthropic_whole]


def test_clients_that_are_held_beyond_their_read_timeouts_get_their_answers(open_way: Callable[..., Way]) -> None:
    way = open_way(keepalive_s=KEEPALIVE_S)
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, way.proxy.url) for ask in CLIENTS]
        wait_held(way, answers)
        time.sleep(HELD_S)
        way.proxy.control("POST", "/weir/resume")
        assert [answer.result() for answer in answers] == [ANSWER] * len(CLIENTS)
    assert all(record.held_us >= HELD_S * 1e6 for record in way.proxy.records())


def test_clients_in_flight_when_weights_change_are_kept_alive_until_their_answers_go_on(
    open_way: Callable[..., Way],
) -> None:
    way = open_way(keepalive_s=KEEPALIVE_S)
    ids = ids_of(ANSWER)
    first = [Script(ids=ids, version="1", cut="wait", cut_after=4)] * len(CLIENTS)
    way.say(*first, Script(ids=ids[4:], version="2"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, way.proxy.url) for ask in CLIENTS]
        way.engine.wait_waiting(len(CLIENTS))
        way.proxy.control("POST", "/weir/pause")
        way.engine.go_on("abort")
        wait_held(way, answers)
        time.sleep(HELD_S)
        way.proxy.control("POST", "/weir/resume")
        assert [answer.result() for answer in answers] == [ANSWER] * len(CLIENTS)
    assert [[span.label for span in record.spans] for record in way.proxy.records()] == [["1", "2"]] * len(CLIENTS)


def test_streaming_clients_that_wait_for_their_turn_are_kept_alive(open_way: Callable[..., Way]) -> None:
    way = open_way(keepalive_s=KEEPALIVE_S, max_concurrent=1)
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(openai_streamed, way.proxy.url)
        wait_held(way, [first])
        queued = [pool.submit(ask, way.proxy.url) for ask in (openai_streamed, anthropic_streamed)]
        time.sleep(HELD_S)
        way.proxy.control("POST", "/weir/resume")
        assert [answer.result() for answer in (first, *queued)] == [ANSWER] * 3


def wait_held(way: Way, answers: list[concurrent.futures.Future[str]]) -> None:
    """Return when all are held; fails with a client's own error when it ended before."""
    while way.proxy.control("GET", "/weir/state").json()["held"] < len(answers):
        for answer in answers:
            assert not answer.done(), answer.result()
        time.sleep(0.01)
