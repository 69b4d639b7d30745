"""The fan-out of one answer: its messages are kept while it is made, so that retries get the same from its beginning.

Invariant: every follower gets the same bytes in the same order as the first client, whenever it came and whether that
client is still there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class SharedAnswer:
    """The ASGI messages of one answer. It stands in for the `send` of the exchange that makes the answer."""

    def __init__(self, send: Send, grace_s: float) -> None:
        """`grace_s` is how long an answer without a client and without followers is still wanted."""
        self._send = send
        self._grace_s = grace_s
        self._start: Message | None = None
        self._body = bytearray()
        self._ended = False
        self._cut = False
        self._num_followers = 0
        self._alone_since = 0.0
        self._more = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._body += message["body"]
            self._ended = not message["more_body"]
        self._more.set()
        await self._send(message)

    def cut(self) -> None:
        """Let followers know that nothing more will come."""
        self._cut = True
        self._more.set()

    async def follow(self, send: Send) -> bool:
        """Send the whole answer to another client, from its beginning. Returns whether it was completed."""
        self._num_followers += 1
        try:
            return await self._follow(send)
        finally:
            self._num_followers -= 1
            self._alone_since = time.monotonic()
            self._more.set()

    def leave(self) -> None:
        """Note that the first client has left."""
        self._alone_since = time.monotonic()

    async def until_nobody_follows(self) -> None:
        """Return when nobody has followed for the grace period; the first client must have left."""
        while self._num_followers or (left_s := self._alone_since + self._grace_s - time.monotonic()) > 0:
            self._more.clear()
            try:
                async with asyncio.timeout(None if self._num_followers else left_s):
                    await self._more.wait()
            except TimeoutError:
                continue

    async def _follow(self, send: Send) -> bool:
        sent = 0
        started = False
        while True:
            if self._start is not None and not started:
                started = True
                await send(self._start)
            elif sent < len(self._body):
                data = bytes(self._body[sent:])
                sent += len(data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
            elif self._ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return True
            elif self._cut:
                return False
            else:
                self._more.clear()
                await self._more.wait()
