"""Limits on one client: clear refusals, bounds on heads, bodies and time."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
from support_scripted_engine import Script
from support_way import Way, ids_of

from weir.proxy.errors import Overloaded
from weir.proxy.http.admission import Admission
from weir.proxy.http.http_protocol import MAX_HEAD_BYTES

USER: Any = [{"role": "user", "content": "Hi"}]
BODY = json.dumps({"model": "weir", "messages": USER}).encode()


@contextmanager
def connected(way: Way) -> Iterator[socket.socket]:
    host, _, port = way.proxy.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        yield client


def received(client: socket.socket) -> bytes:
    """All bytes until the other side closes."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def head(length: int, extra: bytes = b"") -> bytes:
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\n"
        + extra
        + b"content-length: %d\r\n\r\n" % length
    )


def ask(way: Way, stream: bool = False) -> str:
    client = way.proxy.client()
    if stream:
        chunks = client.chat.completions.create(model="weir", messages=USER, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return client.chat.completions.create(model="weir", messages=USER).choices[0].message.content or ""


def test_a_place_is_taken_for_as_long_as_a_request_lasts() -> None:
    admission = Admission(2)
    with admission:
        with admission, pytest.raises(Overloaded, match="holds 2 requests"), admission:
            pass
        assert admission.num_places == 1
        with admission:
            pass
    assert admission.num_places == 0


@pytest.mark.parametrize("stream", [False, True])
def test_more_requests_than_may_run_wait_with_keepalives_and_more_than_may_wait_are_refused(
    open_way: Callable[..., Way], stream: bool
) -> None:
    way = open_way(max_concurrent=1, max_queued=1, keepalive_s=0.05)
    way.say(Script(ids=ids_of("Hello."), cut="wait", cut_after=1))
    departures = way.proxy.proxy.departures
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, way)
        way.engine.wait_waiting()
        body = {"model": "weir", "messages": USER, "stream": stream}
        with httpx.stream("POST", way.proxy.url + "/v1/chat/completions", json=body, timeout=60) as second:
            sign = b": waiting\n\n" if stream else b" "
            parts = second.iter_raw(len(sign))
            assert next(parts) == sign
            assert departures.waiting == 1
            with pytest.raises(openai.InternalServerError) as refused:
                ask(way)
            assert (refused.value.status_code, refused.value.code) == (503, "overloaded")
            assert refused.value.response.headers["retry-after"] == "1"
            assert len(way.engine.requests) == 1
            way.engine.go_on()
            way.engine.wait_waiting()
            way.engine.go_on()
            assert (b"[DONE]" if stream else b"Hello.") in b"".join(parts)
        assert first.result() == "Hello."


def test_a_queued_client_that_leaves_gives_its_place_back(open_way: Callable[..., Way]) -> None:
    way = open_way(max_concurrent=1, max_queued=1, keepalive_s=0.05)
    way.say(Script(ids=ids_of("Hello."), cut="wait", cut_after=1))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, way)
        way.engine.wait_waiting()
        with connected(way) as second:
            second.sendall(head(len(BODY)) + BODY)
            assert second.recv(10)  # it is queued: a keepalive comes
        third = pool.submit(
            lambda: way.proxy.client(max_retries=50).chat.completions.create(model="weir", messages=USER)
        )
        way.engine.go_on()
        way.engine.wait_waiting()
        way.engine.go_on()
        assert first.result() == "Hello."
        assert third.result().choices[0].message.content == "Hello."
    assert len(way.engine.requests) == 2, "the call of the client that left never reached the engine"


def test_a_body_that_is_too_large_is_refused_before_it_is_read_and_the_client_sees_it(
    open_way: Callable[..., Way],
) -> None:
    way = open_way(max_request_bytes=2**20)
    large = {"model": "weir", "messages": [{"role": "user", "content": "x" * 2**23}]}
    answer = way.proxy.post("/v1/chat/completions", large)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")

    def chunks() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 2**17

    answer = httpx.post(way.proxy.url + "/v1/chat/completions", content=chunks(), timeout=60)
    assert answer.status_code == 413


def test_a_body_that_comes_a_byte_at_a_time_is_bounded_in_time(open_way: Callable[..., Way]) -> None:
    way = open_way(body_timeout_s=0.3)
    with connected(way) as client:
        client.sendall(head(1000))
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                try:
                    client.send(b" ")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        answer = received(client)
        stop.set()
        dripping.join()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_too_slow" in answer


def test_a_head_that_never_ends_closes_the_connection(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.proxy.http.http_protocol.HEAD_LIMIT_S", 0.1)
    for beginning in (b"", b"POST /v1/chat/comp", b"GET /v1/models HTTP/1.1\r\nhost: w\r\n\r\nGET /v1"):
        with connected(way) as client:
            client.sendall(beginning)
            answer = received(client)
            assert answer.count(b"HTTP/1.1 200") == beginning.count(b"\r\n\r\n")


def test_a_head_without_end_is_refused_in_the_one_form(way: Way) -> None:
    with connected(way) as client:
        beginning = b"GET /v1/models HTTP/1.1\r\nx-filler: "
        client.sendall(beginning + b"x" * (MAX_HEAD_BYTES + 1 - len(beginning)))
        answer = received(client)
    assert answer.startswith(b"HTTP/1.1 400")
    assert set(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 9e9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/chat/\xff HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST /v1/chat/completions HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_no_request_gets_an_error_and_harms_nobody(way: Way, request_bytes: bytes) -> None:
    with connected(way) as client:
        client.sendall(request_bytes)
        client.shutdown(socket.SHUT_WR)
        answer = received(client)
    assert not answer or answer.split(b" ")[1].startswith(b"4"), answer
    way.say("Hello.")
    assert ask(way) == "Hello."


def test_hundreds_of_idle_connections_are_in_nobodys_way(way: Way) -> None:
    way.say("Hello.")
    host, _, port = way.proxy.url.removeprefix("http://").partition(":")
    idle = [socket.create_connection((host, int(port)), timeout=60) for _ in range(400)]
    try:
        assert ask(way) == "Hello."
    finally:
        for client in idle:
            client.close()
