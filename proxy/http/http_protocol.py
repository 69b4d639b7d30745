"""uvicorn's HTTP protocol, with limits on clients before a request is complete, and after it was answered.

Invariants: a request's head arrives within `HEAD_LIMIT_S` and `MAX_HEAD_BYTES`, or the connection ends; the rest of a
body that was answered before it had arrived is read and discarded for `REST_LIMIT_S` at most, because closing the
connection at once could lose the answer. Malformed HTTP is refused with the usual JSON error. `Exchange.body` limits
the bodies of calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weir.proxy.errors import BadRequest, error_object
from weir.proxy.http.exchange import CONNECTION

HEAD_LIMIT_S = 30.0
MAX_HEAD_BYTES = 64 * 2**10
REST_LIMIT_S = 30.0


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    # Beside the attributes of uvicorn's class, which fill a dictionary that all connections share the keys of.
    __slots__ = ("_client_left", "_head_bytes", "_in_body", "_in_head", "_is_lost", "_limit")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0
        self._limit: asyncio.TimerHandle | None = None
        self._is_lost = False
        self._client_left: Callable[[], None] | None = None

    def watch(self, left: Callable[[], None]) -> None:
        """Have `left` called once the client has disconnected. Bodies must have been read."""
        self._client_left = left
        self.flow.resume_reading()  # a long body paused it, and what is not read does not end
        if self._is_lost:
            self.loop.call_soon(left)

    def unwatch(self, left: Callable[[], None]) -> None:
        """Have `left` called no longer; what another request watches with stays."""
        if self._client_left == left:
            self._client_left = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit = self.loop.call_later(HEAD_LIMIT_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        super().connection_lost(exc)
        self._is_lost = True
        if self._client_left is not None:
            self._client_left()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"the head of the request is larger than {MAX_HEAD_BYTES} bytes")
            elif self._limit is None:
                self._limit = self.loop.call_later(HEAD_LIMIT_S, self._give_up)
        elif self._in_body and self._limit is None and self.cycle.response_complete:
            self._limit = self.loop.call_later(REST_LIMIT_S, self._give_up)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]  # ours, and no dictionary

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        self._unlimit()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._unlimit()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(error_object(BadRequest(msg)))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _unlimit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _give_up(self, *_: Any) -> None:
        self._limit = None
        self.transport.close()
