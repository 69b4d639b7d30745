"""One HTTP exchange over raw ASGI: the body in, the answer out, keepalives in between, and whether the client left.

Invariant: an answer is started once and ended once; keepalives never fall between the two halves of another send. A
client that leaves cancels the task that serves it, and `client_left` says that this was the reason. Not here: what is
said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

from weir.proxy.conversation.caller import Names
from weir.proxy.errors import BadRequest, BodyTooSlow, CallError, RequestTooLarge, Unavailable
from weir.proxy.http.admission import Place
from weir.proxy.http.answer_fanout import SharedAnswer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
JSON = b"application/json"
_T = TypeVar("_T")
EVENTS = b"text/event-stream; charset=utf-8"


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.answer_headers: dict[str, str] = {}
        self.client_left = False
        self.key_names: Names | None = None  # the session whose key the request shows
        self.place: Place | None = None  # among the requests that are served or wait
        self.started = False
        self._receive = receive
        self._send = send
        self._sending = False
        self._ended = False
        self._last_sent = time.monotonic()
        self._watch: asyncio.Task[None] | None = None
        self._shared: SharedAnswer | None = None
        self._grace_s = 0.0
        self._is_alone = False  # the client left, though others may have joined

    @property
    def is_alone(self) -> bool:
        """Whether the client that asked has left."""
        return self._is_alone

    def share(self, grace_s: float) -> None:
        """Let others join this answer; without its client it is given up only after a while."""
        self._shared = SharedAnswer(self._send)
        self._send = self._shared
        self._grace_s = grace_s

    async def join(self, first: Exchange) -> None:
        """Give this client what another is given, from its beginning. Raises `Unavailable` if that never ends."""
        assert first._shared is not None
        following = asyncio.create_task(first._shared.follow(self._send_as_first))
        if not await self.while_client_stays(following) and not self.started:
            raise Unavailable("the call that this retry joined was cut short; try again")

    async def while_client_stays(self, work: asyncio.Task[_T]) -> _T:
        """The work's result. Ends the work, and raises CancelledError, when the client leaves."""
        leaving = asyncio.create_task(self._until_left())
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.client_left = True
                raise asyncio.CancelledError
            return work.result()
        finally:
            work.cancel()
            leaving.cancel()

    def close(self) -> None:
        """Nothing more will be sent. May be called twice."""
        if self._shared is not None:
            self._shared.cut()

    async def _send_as_first(self, message: MutableMapping[str, Any]) -> None:
        self.started = True
        self._ended = message["type"] == "http.response.body" and not message["more_body"]
        await self._send(message)

    @property
    def queued(self) -> bool:
        """Whether it waits for its turn."""
        return self.place is not None and self.place.waits

    async def turn(self) -> None:
        """Return when it is this request's turn."""
        if self.place is not None:
            await self.place.turn()

    async def body(self, limit_bytes: int, limit_s: float) -> bytes:
        """The whole request body. Raises `RequestTooLarge` or `BodyTooSlow`, without reading the rest."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._read_body(limit_bytes)
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
                self.client_left = True
                raise asyncio.CancelledError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        return b"".join(parts)

    def attend(self, keepalive_s: float, keepalive: Callable[[], bytes], content_type: bytes) -> None:
        """From now on, watch for the client leaving, and send what `keepalive` gives in every long silence."""
        task = asyncio.current_task()
        assert task is not None
        self._watch = asyncio.create_task(self._attend(task, keepalive_s, keepalive, content_type))

    def dismiss(self) -> None:
        """Stop attending. May be called twice."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def start(self, status: int, content_type: bytes, length: int | None = None) -> None:
        """Send status and headers; nothing if that has happened."""
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
        self._sending = True
        self._last_sent = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending = False

    async def end(self, data: bytes = b"") -> None:
        """Send the last part."""
        self._ended = True
        self.dismiss()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def answer(self, status: int, data: bytes, content_type: bytes = JSON) -> None:
        """Send a whole answer; only the body, where keepalives have already started it."""
        await self.start(status, content_type, len(data))
        await self.end(data)

    async def fail(self, error: CallError, body: bytes) -> None:
        """Send an error as a whole answer; nothing where an answer has ended already."""
        if self._ended:
            return
        if isinstance(error, BodyTooSlow):
            self.answer_headers["connection"] = "close"
        if error.retry_after_s is not None:
            self.answer_headers["retry-after"] = f"{error.retry_after_s:g}"
        await self.answer(error.status, body)

    async def _attend(
        self, task: asyncio.Task[Any], keepalive_s: float, keepalive: Callable[[], bytes], content_type: bytes
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(max(0.01, self._last_sent + keepalive_s - time.monotonic())):
                    await self._until_nobody_waits()
            except TimeoutError:
                await self._keep_alive(keepalive_s, keepalive(), content_type)
                continue
            if not self._ended:
                self.client_left = True
                task.cancel()
            return

    async def _until_nobody_waits(self) -> None:
        if not self._is_alone:
            await self._until_left()
            self._is_alone = True
            if self._shared is not None:
                self._shared.leave()
        if self._shared is not None:
            await self._shared.nobody_follows(self._grace_s)

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _keep_alive(self, keepalive_s: float, data: bytes, content_type: bytes) -> None:
        silent_s = time.monotonic() - self._last_sent
        if silent_s < keepalive_s or self._sending or self._ended:
            return
        self._last_sent = time.monotonic()
        if data:
            await self.start(200, content_type)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


def _content_length(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(f"content-length is {text!r:.40}, not a number of bytes")
    return int(text[:20])


def json_keepalive(held: Callable[[], bool]) -> Callable[[], bytes]:
    """White space before a JSON body, only for calls that the gate holds: it commits the status 200."""
    return lambda: b" " if held() else b""
