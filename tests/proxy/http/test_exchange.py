"""Real SDK clients that are held, or wait for their turn, and hear keepalives all the time."""

import concurrent.futures
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import anthropic
import openai
from support_scripted_engine import Script
from support_way import Way, ids_of

ANSWER = "Hello there, you."
READ_TIMEOUT_S, KEEPALIVE_S = 20.0, 0.1  # far apart: a busy machine sends late
PATIENT_S = 300.0  # a read timeout that only silence without end reaches
LEAST_PARTS = 30  # that each client must hear while it waits
MESSAGES: Any = [{"role": "user", "content": "Hi"}]


class Tap:
    """A way to the proxy that counts what arrives for one client."""

    def __init__(self, url: str) -> None:
        self.parts = 0
        host, port = url.removeprefix("http://").split(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with self._listener:
            client, _ = self._listener.accept()
        upstream = socket.create_connection(self._upstream)
        threading.Thread(target=self._relay, args=(client, upstream), daemon=True).start()
        with client, upstream:
            while part := upstream.recv(65536):
                self.parts += 1
                client.sendall(part)

    def _relay(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other thread closes both
            while part := client.recv(65536):
                upstream.sendall(part)
            upstream.shutdown(socket.SHUT_WR)


def openai_client(url: str, read_timeout_s: float) -> openai.OpenAI:
    timeout = openai.Timeout(PATIENT_S, read=read_timeout_s)
    return openai.OpenAI(base_url=url + "/v1", api_key="agent", max_retries=0, timeout=timeout)


def anthropic_client(url: str, read_timeout_s: float) -> anthropic.Anthropic:
    timeout = anthropic.Timeout(PATIENT_S, read=read_timeout_s)
    return anthropic.Anthropic(base_url=url, api_key="agent", max_retries=0, timeout=timeout)


def openai_streamed(url: str, read_timeout_s: float) -> str:
    with openai_client(url, read_timeout_s) as client:
        stream = client.chat.completions.create(model="weir", messages=MESSAGES, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def openai_whole(url: str, read_timeout_s: float) -> str:
    with openai_client(url, read_timeout_s) as client:
        return client.chat.completions.create(model="weir", messages=MESSAGES).choices[0].message.content or ""


def responses_streamed(url: str, read_timeout_s: float) -> str:
    with openai_client(url, read_timeout_s) as client:
        events = client.responses.create(model="weir", input="Hi", stream=True)
        return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def anthropic_streamed(url: str, read_timeout_s: float) -> str:
    with (
        anthropic_client(url, read_timeout_s) as client,
        client.messages.stream(model="weir", max_tokens=64, messages=MESSAGES) as stream,
    ):
        return stream.get_final_text()


def anthropic_whole(url: str, read_timeout_s: float) -> str:
    with anthropic_client(url, read_timeout_s) as client:
        block: Any = client.messages.create(model="weir", max_tokens=64, messages=MESSAGES).content[0]
        return str(block.text)


CLIENTS = [openai_streamed, openai_whole, responses_streamed, anthropic_streamed, anthropic_whole]


class Asked:
    """Clients that ask at once, each in its own thread."""

    def __init__(self, pool: concurrent.futures.Executor, url: str, clients: list[Any], timeout_s: float) -> None:
        self.taps = [Tap(url) for _ in clients]
        self.answers = [pool.submit(ask, tap.url, timeout_s) for ask, tap in zip(clients, self.taps, strict=True)]

    def wait_held(self, way: Way) -> None:
        """Return when all are held."""
        while way.proxy.control("GET", "/weir/state").json()["held"] < len(self.answers):
            self._wait()

    def wait_heard(self, held_s: float = 0.0) -> None:
        """Return when each has heard its keepalives from now on, and this time is over."""
        enough = [tap.parts + LEAST_PARTS for tap in self.taps]
        until_s = time.monotonic() + held_s
        while time.monotonic() < until_s or any(
            tap.parts < parts for tap, parts in zip(self.taps, enough, strict=True)
        ):
            self._wait()

    def _wait(self) -> None:
        """A little; fails with a client's own error when it ended."""
        for answer in self.answers:
            assert not answer.done(), answer.result()
        time.sleep(0.01)

    def texts(self) -> list[str]:
        return [answer.result() for answer in self.answers]


def test_clients_that_are_held_beyond_their_read_timeouts_get_their_answers(open_way: Callable[..., Way]) -> None:
    way = open_way(keepalive_s=KEEPALIVE_S)
    way.say(ANSWER)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = Asked(pool, way.proxy.url, CLIENTS, PATIENT_S)  # what they load takes its time once
        assert first.texts() == [ANSWER] * len(CLIENTS)
        way.proxy.control("POST", "/weir/pause")
        held = Asked(pool, way.proxy.url, CLIENTS, READ_TIMEOUT_S)
        held.wait_held(way)
        held.wait_heard(READ_TIMEOUT_S)
        way.proxy.control("POST", "/weir/resume")
        assert held.texts() == [ANSWER] * len(CLIENTS)
    held_us = sorted(record.held_us for record in way.proxy.records())
    assert held_us[: len(CLIENTS)] == [0] * len(CLIENTS)
    assert all(us >= READ_TIMEOUT_S * 1e6 for us in held_us[len(CLIENTS) :])


def test_clients_in_flight_when_weights_change_are_kept_alive_until_their_answers_go_on(
    open_way: Callable[..., Way],
) -> None:
    way = open_way(keepalive_s=KEEPALIVE_S)
    ids = ids_of(ANSWER)
    first = [Script(ids=ids, version="1", cut="wait", cut_after=4)] * len(CLIENTS)
    way.say(*first, Script(ids=ids[4:], version="2"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = Asked(pool, way.proxy.url, CLIENTS, PATIENT_S)
        way.engine.wait_waiting(len(CLIENTS))
        way.proxy.control("POST", "/weir/pause")
        way.engine.go_on("abort")
        asked.wait_held(way)
        asked.wait_heard()
        way.proxy.control("POST", "/weir/resume")
        assert asked.texts() == [ANSWER] * len(CLIENTS)
    assert [[span.label for span in record.spans] for record in way.proxy.records()] == [["1", "2"]] * len(CLIENTS)


def test_streaming_clients_that_wait_for_their_turn_are_kept_alive(open_way: Callable[..., Way]) -> None:
    way = open_way(keepalive_s=KEEPALIVE_S, max_concurrent=1)
    way.say(ANSWER)
    way.proxy.control("POST", "/weir/pause")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = Asked(pool, way.proxy.url, [openai_streamed], PATIENT_S)
        first.wait_held(way)
        queued = Asked(pool, way.proxy.url, [openai_streamed, anthropic_streamed], PATIENT_S)
        queued.wait_heard()
        way.proxy.control("POST", "/weir/resume")
        assert first.texts() + queued.texts() == [ANSWER] * 3
