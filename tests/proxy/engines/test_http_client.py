"""The client of upstreams against servers that answer byte by byte, close, stall, or answer in every form of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import random
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop

from weir.proxy.engines.http_client import HttpClient, Origin
from weir.proxy.errors import UpstreamLost, UpstreamNotReached

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"


@contextlib.asynccontextmanager
async def served(serve: Serve, answer_timeout_s: float = 30.0) -> AsyncIterator[tuple[HttpClient, Origin]]:
    """A client, and the origin of a server whose connections `serve` handles."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = HttpClient(connect_timeout_s=5.0, answer_timeout_s=answer_timeout_s)
    try:
        yield client, client.origin(url, f"router at {url}")
    finally:
        await client.close()
        server.close()


def answering(*parts: bytes, closes: bool = False) -> Serve:
    """Answers every request with these parts, each flushed by itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            await reader.readexactly(length)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            if closes:
                return

    return serve


async def whole(client: HttpClient, origin: Origin, method: str = "POST", body: bytes = b"{}") -> tuple[int, bytes]:
    async with client.request(origin, method, "/generate", {"x-key": "1"}, body) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
def test_answers_in_every_form_are_read_whole_and_share_one_connection(run: Callable[[object], None]) -> None:
    text = b"0123456789" * 10_000
    length = OK + b"Content-Length: %d\r\n\r\n" % len(text)
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (text[:7], text[7:50_000], text[50_000:])]

    async def main() -> None:
        for parts in (
            (length + text,),
            (length[:20], length[20:], text[:1], text[1:]),
            (chunked, *chunks, b"0\r\n", b"\r\n"),
            (b"HTTP/1.1 100 Continue\r\n\r\n", length + text),
        ):
            async with served(answering(*parts)) as (client, origin):
                for _ in range(3):
                    assert await whole(client, origin) == (200, text)
                    assert len(origin.idle) == 1
                assert (client.opening, client.in_use) == (0, 0)

    run(main())


def test_an_answer_without_a_length_ends_with_its_connection_and_one_that_is_cut_is_lost() -> None:
    async def main() -> None:
        async with served(answering(OK + b"\r\n", b"all of it", closes=True)) as (client, origin):
            assert await whole(client, origin) == (200, b"all of it")
            assert not origin.idle
        for cut in (
            OK,
            OK + b"Content-Length: 9\r\n\r\nhalf",
            OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf",
            b"",
        ):
            async with served(answering(cut, closes=True)) as (client, origin):
                with pytest.raises(UpstreamLost, match="ended before the answer did"):
                    await whole(client, origin)
                assert (client.opening, client.in_use) == (0, 0)

    uvloop.run(main())


def test_what_is_no_http_or_takes_too_long_is_lost() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with served(answering(b"SSH-2.0-OpenSSH\r\n\r\n")) as (client, origin):
            with pytest.raises(UpstreamLost, match="no answer in HTTP"):
                await whole(client, origin)
        async with served(silent, answer_timeout_s=0.05) as (client, origin):
            with pytest.raises(UpstreamLost, match="answer_timeout_s"):
                await whole(client, origin)

    uvloop.run(main())


def test_a_connection_that_is_refused_reached_nobody() -> None:
    async def main() -> None:
        async with served(answering(OK)) as (client, origin):
            pass
        with pytest.raises(UpstreamNotReached, match="cannot connect to the router at"):
            await whole(client, origin)
        assert (client.opening, client.in_use) == (0, 0)

    uvloop.run(main())


def test_a_kept_connection_that_the_upstream_closed_is_not_used_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(OK + b"Content-Length: 2\r\n\r\nok")
        await writer.drain()

    async def main() -> None:
        async with served(once) as (client, origin):
            for _ in range(3):
                assert await whole(client, origin) == (200, b"ok")
                for connection, _ in origin.idle:
                    await connection.lost

    uvloop.run(main())


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
@pytest.mark.parametrize("turns", range(4))  # of the loop, between what comes and the next request
@pytest.mark.parametrize("stray", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])  # b"": the upstream closes it
def test_a_kept_connection_that_is_ending_is_not_used_again(
    run: Callable[[object], None], turns: int, stray: bytes
) -> None:
    async def main() -> None:
        client = HttpClient(connect_timeout_s=30.0, answer_timeout_s=30.0)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(30)  # where no second connection comes
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            origin = client.origin(url, f"router at {url}")
            _, peer = await asyncio.gather(whole(client, origin), asyncio.to_thread(answer_first_on, listener))
            ((kept, _),) = origin.idle
            assert kept.sock is not None
            if stray:
                peer.sendall(stray)
            else:
                peer.shutdown(socket.SHUT_WR)
            select.select([kept.sock], [], [])  # the kernel has it, and the loop does not know yet
            for _ in range(turns):
                await asyncio.sleep(0)
            answer, again = await asyncio.gather(whole(client, origin), asyncio.to_thread(answer_first_on, listener))
            assert answer == (200, b"ok")
            peer.close()
            again.close()
            await client.close()

    run(main())


def test_an_address_that_swallows_connections_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    silent_host, answering = "127.0.0.3", "127.0.0.2"  # one port at both, and other servers listen at 127.0.0.1

    async def main() -> None:
        client = HttpClient(connect_timeout_s=6.0, answer_timeout_s=30.0)
        with socket.create_server((answering, 0)) as listener, socket.socket() as silent:
            listener.settimeout(30)
            port = listener.getsockname()[1]
            silent.bind((silent_host, port))
            silent.listen(0)
            filling = [socket.socket() for _ in range(4)]  # its queue: the kernel drops what comes after
            for one in filling:
                one.setblocking(False)
                one.connect_ex((silent_host, port))
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in (silent_host, answering)]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            origin = client.origin(f"http://two.invalid:{port}", "router")
            answer, peer = await asyncio.gather(whole(client, origin), asyncio.to_thread(answer_first_on, listener))
            assert answer == (200, b"ok")
            assert await origin.addresses() == [answering, silent_host]
            for one in (*filling, peer):
                one.close()
            await client.close()

    asyncio.run(main())


def answer_first_on(listener: socket.socket) -> socket.socket:
    """Answer the first request on the next connection, which is returned."""
    peer, _ = listener.accept()
    data = b""
    while not data.endswith(b"{}"):
        data += peer.recv(4096)
    peer.sendall(OK + b"Content-Length: 2\r\n\r\nok")
    return peer


def test_an_answer_that_is_left_early_drops_its_connection() -> None:
    ended = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        await reader.read()
        ended.set()

    async def main() -> None:
        async with served(endless) as (client, origin):
            async with client.request(origin, "POST", "/generate", {}, b"{}") as answer:
                assert await answer.part() == b"ok"
                assert client.in_use == 1
            assert client.in_use == 0
            await ended.wait()
            assert not origin.idle

    uvloop.run(main())


def test_streams_at_rest_are_read_at_one_tick_and_lose_nothing() -> None:
    gate = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n0\r\n")
        for number in range(1, 10):
            await gate.wait()
            writer.write(b"1\r\n%d\r\n" % number)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def read(client: HttpClient, origin: Origin, wakes: list[float]) -> bytes:
        async with client.request(origin, "POST", "/generate", {}, b"{}") as answer:
            data = text = await answer.part()
            gate.set()
            while data:
                data = await answer.part_at_tick(0.05)
                wakes.append(asyncio.get_running_loop().time())
                text += data
            return text

    async def main() -> None:
        async with served(stream) as (client, origin):
            wakes: list[list[float]] = [[] for _ in range(8)]
            texts = await asyncio.gather(*(read(client, origin, one) for one in wakes))
            assert texts == [b"0123456789"] * 8
            assert all(len(one) <= 3 for one in wakes)  # ten pieces came in two, and the end

    uvloop.run(main())


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
def test_what_comes_in_the_smallest_pieces_is_waited_for_in_every_way_after_a_rest(
    run: Callable[[object], None],
) -> None:
    body = b"".join(b"3\r\n%03d\r\n" % number for number in range(12)) + b"0\r\n\r\n"

    async def bytewise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for byte in body:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.003)

    async def read(client: HttpClient, origin: Origin, order: int) -> bytes:
        draw = random.Random(order)
        async with client.request(origin, "POST", "/generate", {}, b"{}") as answer:
            data = text = await answer.part()
            while data:
                wait, *pause_s = draw.choice([(answer.part_at_tick, 0.02), (answer.part_after, 0), (answer.part,)])
                data = await wait(*pause_s)
                text += data
            return text

    async def main() -> None:
        async with served(bytewise) as (client, origin), asyncio.timeout(30):
            texts = await asyncio.gather(*(read(client, origin, order) for order in range(1, 8)))
            assert texts == [b"".join(b"%03d" % number for number in range(12))] * 7

    run(main())


def test_heads_have_no_line_breaks_of_their_own_and_no_spaces_in_paths() -> None:
    seen: list[bytes] = []

    async def listening(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + b"Content-Length: 0\r\n\r\n")
        await writer.drain()

    async def main() -> None:
        async with served(listening) as (client, origin):
            async with client.request(origin, "GET", "/v1/models/a b\r\nx: y", {"x-name": "é"}) as answer:
                assert await answer.read() == b""
            with pytest.raises(UpstreamLost, match="line break"):
                client.request(origin, "GET", "/", {"x-key": "1\r\nx-other: 2"})

    uvloop.run(main())
    assert seen[0].startswith(b"GET /v1/models/a%20b%0D%0Ax:%20y HTTP/1.1\r\n")
    assert "x-name: é\r\n".encode() in seen[0]


def test_the_answer_to_head_has_no_body() -> None:
    async def main() -> None:
        async with served(answering(OK + b"Content-Length: 900\r\n\r\n")) as (client, origin):
            assert await whole(client, origin, "HEAD", b"") == (200, b"")

    uvloop.run(main())


def test_a_url_gives_host_port_path_and_credentials() -> None:
    origin = Origin("https://me:se%20cret@example.org/base/", "upstream")
    assert (origin.host, origin.port, origin.path) == ("example.org", 443, "/base")
    assert origin.head == "Host: example.org\r\nAuthorization: Basic bWU6c2UgY3JldA==\r\n"
    assert Origin("http://[::1]:81", "upstream").head == "Host: [::1]:81\r\n"
