"""One HTTP exchange over raw ASGI: the request's body in, the answer out.

Invariant: an answer is started once and ended once. Pure transport: `client_watch.py` sends keepalives and notices that
the client left, and `answer_fanout.py` gives the same answer to other clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from weir.proxy.errors import BadRequest, BodyTooSlow, CallError, RequestTooLarge
from weir.proxy.http.answer_fanout import SharedAnswer
from weir.proxy.http.content_encoding import decoded

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"


CONNECTION = "weir.connection"  # the extension of ASGI by which the server gives a request its connection


class Connection(Protocol):
    """The client's connection, as the server has it."""

    def watch(self, left: Callable[[], None]) -> None:
        """Have `left` called once the client has disconnected."""
        ...

    def unwatch(self, left: Callable[[], None]) -> None:
        """Have `left` called no longer; what another request watches with stays."""
        ...


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.answer_headers: dict[str, str] = {}
        self.started = False
        self.ended = False
        self.client_gone = False  # the client disconnected, though others may follow its answer
        self.abandoned = False  # serving was cancelled, because nobody waits for the answer any more
        self.is_sending = False
        self.last_sent_s = time.monotonic()
        self.shared: SharedAnswer | None = None  # where other clients may be given this answer too
        self.body_read: bytes | None = None  # the whole body, once it has arrived
        self.before_end: Callable[[], None] | None = None  # called before the last part is sent
        self._receive = receive
        self._send = send
        self._connection: Connection = scope["extensions"][CONNECTION]

    def share(self, grace_s: float) -> None:
        """Let other clients follow this answer; when its own client leaves, it is given up only after `grace_s`."""
        self._send = self.shared = SharedAnswer(self._send, grace_s)

    def close(self) -> None:
        """Nothing more will be sent. May be called twice."""
        if self.shared is not None:
            self.shared.cut()

    async def body(self, limit_bytes: int, limit_s: float) -> bytes:
        """The whole request body, unpacked.

        Raises `RequestTooLarge` or `BodyTooSlow`, without reading the rest, `UnknownEncoding` and `BadRequest`.
        """
        try:
            async with asyncio.timeout(limit_s):
                sent = await self._read_body(limit_bytes)
                self.body_read = await decoded(sent, self.headers.get("content-encoding", ""), limit_bytes)
                return self.body_read
        except TimeoutError as error:
            raise BodyTooSlow(f"the body did not arrive within {limit_s:g} s (proxy.body_timeout_s)") from error

    async def _read_body(self, limit_bytes: int) -> bytes:
        parts: list[bytes] = []
        announced = _content_length(self.headers.get("content-length", "0"))
        size = 0
        more = True
        while more:
            if max(size, announced) > limit_bytes:
                raise RequestTooLarge(f"the body is larger than {limit_bytes} bytes; shorten it")
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_gone = self.abandoned = True
                raise asyncio.CancelledError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        return b"".join(parts)

    def watch_client(self, left: Callable[[], None]) -> None:
        """Have `left` called once the client has disconnected. The body must have been read."""
        self._connection.watch(left)

    def unwatch_client(self, left: Callable[[], None]) -> None:
        """Have `left` called no longer. The connection may be at its next request by then, which has its own watch."""
        self._connection.unwatch(left)

    async def start(self, status: int, content_type: bytes, length: int | None = None) -> None:
        """Send status and headers, unless they were sent already."""
        if self.started:
            return
        self.started = True
        headers = [(b"content-type", content_type)]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        if content_type is EVENTS:
            headers.append((b"cache-control", b"no-cache"))
        headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in self.answer_headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        """Send a part of a started answer."""
        self.is_sending = True
        self.last_sent_s = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.is_sending = False

    async def send_message(self, message: Message) -> None:
        """Send one ASGI message of an answer that another exchange makes."""
        self.started = True
        self.ended = message["type"] == "http.response.body" and not message["more_body"]
        await self._send(message)

    async def end(self, data: bytes = b"") -> None:
        """Send the last part."""
        self.ended = True
        if self.before_end is not None:
            self.before_end()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def answer(self, status: int, data: bytes, content_type: bytes = JSON) -> None:
        """Send a whole answer; only the body, where keepalives have already started it."""
        await self.start(status, content_type, len(data))
        await self.end(data)

    async def fail(self, error: CallError, body: bytes) -> None:
        """Send an error as a whole answer; nothing where an answer has ended already."""
        if self.ended:
            return
        if isinstance(error, BodyTooSlow):
            self.answer_headers["connection"] = "close"
        if error.retry_after_s is not None:
            self.answer_headers["retry-after"] = f"{error.retry_after_s:g}"
        await self.answer(error.status, body)


def _content_length(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(f"content-length is {text!r:.40}, not a number of bytes")
    return int(text[:20])
