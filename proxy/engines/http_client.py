"""HTTP/1.1 towards upstreams, on the path of every call: httptools over kept connections, and nothing that a call does
not need.

Streams are read in common: while a stream rests, its data stays with the kernel, and one timer for all of them reads
what has come. So a stream's wake-up costs one system call and no event of the loop. Invariants: a connection carries
one request at a time, and is used again only after its answer was complete; what is raised tells whether the upstream
may have seen the request (`UpstreamNotReached`: no; `UpstreamLost`: yes, or perhaps).
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
import time
from collections.abc import Mapping
from types import TracebackType
from typing import cast
from urllib.parse import quote

import httptools
from yarl import URL

from weir.proxy.engines.connections import Connections
from weir.proxy.engines.ticks import Ticks
from weir.proxy.errors import UpstreamLost, UpstreamNotReached

KEPT_S = 4.0  # how long an unused connection is kept; servers on uvicorn close it after 5 s
RESOLVED_S = 10.0  # how long a name's addresses are believed
_READ_BYTES = 2**18
_UNSAFE = re.compile(r"[^\x21-\x7e]")
_ENDS_LINE = re.compile(r"[\r\n\0]")

Buffer = bytes | memoryview


class Origin:
    """A scheme, host and port, as requests go there; `name` is what errors call it."""

    def __init__(self, url: str, name: str) -> None:
        parts = URL(url)
        self.name = name
        self.host = parts.host or ""
        self.port = parts.port or 80
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self.path = parts.raw_path.rstrip("/")
        self.head = f"Host: {parts.host_port_subcomponent}\r\n"
        if parts.user is not None:
            credentials = f"{parts.user}:{parts.password or ''}".encode()
            self.head += f"Authorization: Basic {base64.b64encode(credentials).decode()}\r\n"
        self.idle: list[tuple[_Connection, float]] = []
        self.reached = ""  # the address that accepted last
        self._addresses: list[str] = []
        self._resolved_s = -RESOLVED_S

    async def addresses(self) -> list[str]:
        """The host's addresses, first the one that accepted last. Raises OSError where it has none."""
        now_s = time.monotonic()
        if not self._addresses or now_s - self._resolved_s > RESOLVED_S:
            found = await asyncio.get_running_loop().getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
            self._resolved_s = now_s
        return sorted(self._addresses, key=lambda address: address != self.reached)


class HttpClient(Connections):
    """Connections to upstreams. One event loop owns it."""

    def __init__(self, *, connect_timeout_s: float, answer_timeout_s: float) -> None:
        super().__init__()
        self.connect_timeout_s = connect_timeout_s
        self.answer_timeout_s = answer_timeout_s
        self.ticks = Ticks()
        self._origins: dict[str, Origin] = {}
        self._connections: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def origin(self, url: str, name: str) -> Origin:
        """The origin of a URL, the same each time."""
        found = self._origins.get(url)
        if found is None:
            found = self._origins[url] = Origin(url, name)
        return found

    def request(self, origin: Origin, method: str, path: str, headers: Mapping[str, str], *body: Buffer) -> Request:
        """A request, to be entered as a context that gives its answer; `body` is in parts. Leaving it early drops
        the connection.

        Raises `UpstreamLost` for a header that cannot be sent.
        """
        path = _UNSAFE.sub(lambda found: quote(found[0]), path)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if _ENDS_LINE.search(lines.replace("\r\n", "")) or lines.count("\r\n") != len(headers):
            raise UpstreamLost(f"a header for the {origin.name} has a line break in it")
        num_bytes = sum(map(len, body))
        length = f"Content-Length: {num_bytes}\r\n" if num_bytes or method not in ("GET", "HEAD") else ""
        head = f"{method} {origin.path}{path} HTTP/1.1\r\n{origin.head}{lines}{length}\r\n"
        return Request(self, origin, method, b"".join([head.encode(), *body]))

    async def connect(self, origin: Origin) -> _Connection:
        """A kept connection, or a new one. Raises `UpstreamNotReached`."""
        oldest_s = time.monotonic() - KEPT_S
        while origin.idle:
            connection, since_s = origin.idle.pop()
            if since_s > oldest_s and connection.is_usable():
                return connection
            connection.drop()
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                return await self._opened(origin)
        except TimeoutError as error:
            raise UpstreamNotReached(f"the {origin.name} does not accept connections") from error
        except OSError as error:
            raise UpstreamNotReached(f"cannot connect to the {origin.name}: {error.strerror or error}") from error

    def give_back(self, origin: Origin, connection: _Connection) -> None:
        """Keep a connection whose answer is complete."""
        origin.idle.append((connection, time.monotonic()))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEPT_S, self._drop_old)

    async def close(self) -> None:
        """Close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._connections):
            connection.drop()
        await asyncio.sleep(0)

    async def _opened(self, origin: Origin) -> _Connection:
        loop = asyncio.get_running_loop()
        name = origin.host if origin.tls else None
        refused: OSError = OSError(f"{origin.host} has no address")
        addresses = await origin.addresses()
        for address in addresses:
            try:
                async with asyncio.timeout(self.connect_timeout_s / len(addresses)):  # one may swallow what it gets
                    _, connection = await loop.create_connection(
                        lambda: _Connection(self._connections),
                        address,
                        origin.port,
                        ssl=origin.tls,
                        server_hostname=name,
                    )
            except OSError as error:  # or a TimeoutError, which is one
                refused = error
            else:
                origin.reached = address
                return connection
        raise refused

    def _drop_old(self) -> None:
        """Close what was not used for long; the least recently used connections come first."""
        self._sweep = None
        oldest_s = time.monotonic() - KEPT_S
        for origin in self._origins.values():
            while origin.idle and origin.idle[0][1] <= oldest_s:
                origin.idle.pop(0)[0].drop()
            if origin.idle and self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(KEPT_S / 2, self._drop_old)


class Request:
    """One request, from its connection to the end of its answer."""

    __slots__ = ("_client", "_connection", "_data", "_limit", "_method", "_origin")

    def __init__(self, client: HttpClient, origin: Origin, method: str, data: bytes) -> None:
        self._client = client
        self._origin = origin
        self._method = method
        self._data = data

    async def __aenter__(self) -> Answer:
        """Send it and wait for the answer's head. Raises `UpstreamNotReached` or `UpstreamLost`."""
        client = self._client
        client.opening += 1
        try:
            connection = self._connection = await client.connect(self._origin)
        finally:
            client.opening -= 1
        client.in_use += 1
        loop = asyncio.get_running_loop()
        self._limit = loop.call_later(client.answer_timeout_s, connection.time_out, client.answer_timeout_s)
        try:
            connection.send(self._data, self._origin.name, has_body=self._method != "HEAD")
            await connection.until_head()
        except BaseException:
            self._leave()
            raise
        return Answer(connection, client.ticks)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._limit.cancel()
        self._client.in_use -= 1
        connection = self._connection
        if connection.may_be_kept:
            connection.wake()  # to notice when the upstream closes it
            self._client.give_back(self._origin, connection)
        else:
            connection.drop()


class Answer:
    """What the upstream answers: status and headers, and the body as it comes."""

    __slots__ = ("_connection", "_ticks", "headers", "status")

    def __init__(self, connection: _Connection, ticks: Ticks) -> None:
        self.status = connection.status
        self.headers = connection.headers
        self._connection = connection
        self._ticks = ticks

    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamLost`."""
        connection = self._connection
        while not connection.is_complete:
            connection.wake()
            await connection.until_more(wants_all=True)
        return connection.taken()

    async def part(self) -> bytes:
        """What has come of the body, at least a byte; b"" at its end. Raises `UpstreamLost`."""
        connection = self._connection
        while not connection.parts and not connection.is_complete:
            connection.wake()  # what came last may have been a part of a chunk's head, or of what the caller waits for
            await connection.until_more()
        return connection.taken()

    async def part_after(self, pause_s: float) -> bytes:
        """The same, of what has come after a pause, in which it stays with the kernel."""
        if pause_s > 0 and not self._connection.parts and not self._connection.is_complete:
            self._connection.rest()
            await asyncio.sleep(pause_s)
            self._connection.read_now()
        return await self.part()

    async def part_at_tick(self, interval_s: float) -> bytes:
        """The same, of what has come by the next tick of the interval, which all streams share.

        Where nothing has come by then, the next that comes is taken at once.
        """
        if not self._connection.parts and not self._connection.is_complete:
            self._connection.rest()
            self._ticks.add(self._connection.read_now, interval_s)
            await self._connection.until_more()
        return await self.part()

    def acknowledge_at_once(self) -> None:
        """Send a due ACK: else sglang-router's Nagle algorithm waits 40 ms for our delayed ACK. Lasts for one read."""
        sock = self._connection.sock
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class _Connection(asyncio.Protocol):
    """One connection, and the answer that it carries."""

    def __init__(self, all_: set[_Connection]) -> None:
        self.sock: socket.socket | None = None  # of plain TCP; it shares the transport's descriptor
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.is_complete = True
        self.may_be_kept = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._all = all_
        self._name = ""
        self._has_body = self._has_head = True
        self._wants_all = self._is_resting = False
        self._failure = ""
        self._waiter: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_lost(self) -> bool:
        """Whether it has ended."""
        return self.lost.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self._all.add(self)
        given = transport.get_extra_info("socket")
        if transport.get_extra_info("ssl_object") is None and given.family in (socket.AF_INET, socket.AF_INET6):
            self.sock = socket.socket(given.family, given.type, given.proto, fileno=given.fileno())

    def send(self, data: bytes, name: str, *, has_body: bool) -> None:
        """Begin a request; `name` is the upstream's in errors, and its answer `has_body` unless the method is HEAD."""
        self.status, self.headers, self.parts = 0, {}, []
        self.is_complete = self.may_be_kept = self._has_head = False
        self._name, self._has_body = name, has_body
        if not self.is_lost:
            self._transport.write(data)

    def taken(self) -> bytes:
        """The parts that have come, as one."""
        parts, self.parts = self.parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def until_head(self) -> None:
        """Return when the answer's head has come. Raises `UpstreamLost`."""
        while not self._has_head:
            await self.until_more()

    async def until_more(self, *, wants_all: bool = False) -> None:
        """Return when more has come, or all of the answer. Raises `UpstreamLost` where it ended before."""
        if not self._failure and not self.is_lost:
            self._wants_all = wants_all
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self.is_complete and (self._failure or self.is_lost):
            reason = self._failure or "it was closed"
            raise UpstreamLost(f"the connection to the {self._name} ended before the answer did: {reason}")

    def time_out(self, limit_s: float) -> None:
        """End an answer that takes too long."""
        self._fail(f"nothing more was waited for after {limit_s:g} s (proxy.answer_timeout_s)")

    def rest(self) -> None:
        """Leave what comes to the kernel, until `read_now`."""
        if not self._is_resting and not self.is_lost:
            self._is_resting = True
            self._transport.pause_reading()

    def wake(self) -> None:
        """Take what comes as it comes."""
        if self._is_resting and not self.is_lost:
            self._is_resting = False
            self._transport.resume_reading()

    def read_now(self) -> None:
        """Take what has come while resting, and rest on; where nothing has come, what comes next is taken at once."""
        if not self._is_resting or self.is_complete or self.is_lost:
            return
        if self.sock is None:
            self.wake()
            return
        try:
            data = self.sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            self.wake()
        except OSError as error:
            self._fail(repr(error))
        else:
            if data:
                self.data_received(data)
            else:
                self.eof_received()

    def is_usable(self) -> bool:
        """Whether a kept connection takes another request: neither data nor an end has come, not even to the kernel."""
        if not self.may_be_kept or self.sock is None:
            return self.may_be_kept
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def drop(self) -> None:
        """Close it at once."""
        self.may_be_kept = False
        if not self.is_lost:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """asyncio's."""
        if self.is_complete:  # nothing was asked for
            self.drop()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"what came is no answer in HTTP/1.1 ({error!r})")
        else:
            if self._has_head and (self.is_complete or not self._wants_all):
                self._wake_waiter()

    def eof_received(self) -> None:
        """asyncio's. An answer without a length ends with its connection."""
        if self._has_head and not self.headers.keys() & {"content-length", "transfer-encoding"}:
            self.is_complete = True
        self._fail("the upstream closed it")

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's."""
        self.lost.set_result(None)
        self.may_be_kept = False
        self._all.discard(self)
        if self.sock is not None:
            self.sock.detach()  # the descriptor is the transport's
            self.sock = None
        self._failure = self._failure or (repr(exc) if exc is not None else "the upstream closed it")
        self._wake_waiter()

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """The parser's."""
        self.status = self._parser.get_status_code()
        if self.status < 200:  # the answer is still to come
            self.headers = {}
            return
        self._has_head = True
        self.is_complete = not self._has_body

    def on_body(self, body: bytes) -> None:
        """The parser's."""
        self.parts.append(body)

    def on_message_complete(self) -> None:
        """The parser's."""
        if self._has_head and not self.is_complete:
            self.is_complete = True
            self.may_be_kept = self._parser.should_keep_alive() and not self._failure

    def _fail(self, reason: str) -> None:
        """End the answer, and the connection."""
        self._failure = self._failure or reason
        self.may_be_kept = False
        self.drop()
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
