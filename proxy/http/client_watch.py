"""Keepalives in every long silence, and the end of the work when the client leaves.

Invariant: keepalives never fall between the two halves of another send, and none is sent once the answer has ended. A
client that leaves cancels the task that serves it, once no other client follows its answer; `Exchange.abandoned`
then marks the reason. A watch is a timer and a callback of the connection: tasks are made only for what they have to
say, because thousands of calls may be held.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from weir.proxy.http.exchange import Exchange

_T = TypeVar("_T")
_LEAST_S = 0.01


class ClientWatch:
    """Watches the client of one exchange on behalf of the task that starts it."""

    __slots__ = (
        "_content_type",
        "_exchange",
        "_following",
        "_interval_s",
        "_keepalive",
        "_sending",
        "_serving",
        "_timer",
    )

    def __init__(
        self, exchange: Exchange, interval_s: float, keepalive: Callable[[], bytes], content_type: bytes
    ) -> None:
        """`keepalive` gives what is sent after a silence of `interval_s`; b"" sends nothing."""
        self._exchange = exchange
        self._interval_s = interval_s
        self._keepalive = keepalive
        self._content_type = content_type
        self._serving: asyncio.Task[Any] | None = None  # while it is watched
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None  # a keepalive
        self._following: asyncio.Task[None] | None = None  # until the last follower of a client that left has left

    def start(self) -> None:
        """Watch from now on, until `stop` or the end of the answer; cancels the current task when nobody waits."""
        self._serving = asyncio.current_task()
        assert self._serving is not None
        self._exchange.before_end = self.stop
        self._exchange.watch_client(self._client_left)
        self._wait_for_silence()

    def stop(self) -> None:
        """Stop watching. May be called twice."""
        if self._serving is None:
            return
        self._serving = None
        self._exchange.before_end = None  # else both would be a cycle, which only the garbage collector frees
        self._exchange.unwatch_client(self._client_left)
        for running in (self._timer, self._sending, self._following):
            if running is not None:
                running.cancel()
        self._timer = self._sending = self._following = None

    def _client_left(self) -> None:
        exchange = self._exchange
        exchange.client_gone = True
        if exchange.shared is None:
            self._give_up()
        else:
            exchange.shared.leave()
            self._following = asyncio.create_task(self._until_nobody_waits())

    async def _until_nobody_waits(self) -> None:
        assert self._exchange.shared is not None
        await self._exchange.shared.until_nobody_follows()
        self._give_up()

    def _give_up(self) -> None:
        if self._serving is not None and not self._exchange.ended:
            self._exchange.abandoned = True
            self._serving.cancel()

    def _wait_for_silence(self) -> None:
        silent_at_s = self._exchange.last_sent_s + self._interval_s
        wait_s = max(_LEAST_S, silent_at_s - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Send a keepalive if nothing was sent for the interval."""
        exchange = self._exchange
        now_s = time.monotonic()
        if now_s - exchange.last_sent_s >= self._interval_s and not exchange.is_sending and not exchange.ended:
            exchange.last_sent_s = now_s
            data = self._keepalive()
            if data and self._sending is None:
                self._sending = asyncio.create_task(self._send(data))
        self._wait_for_silence()

    async def _send(self, data: bytes) -> None:
        exchange = self._exchange
        if not exchange.is_sending and not exchange.ended:
            await exchange.start(200, self._content_type)
            await exchange.send(data)
        self._sending = None


async def while_client_stays(exchange: Exchange, work: asyncio.Task[_T]) -> _T:
    """The work's result. Ends the work and raises CancelledError when the client leaves before it is done."""
    leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def client_left() -> None:
        if not leaving.done():
            leaving.set_result(None)

    exchange.watch_client(client_left)
    try:
        either: set[asyncio.Future[Any]] = {work, leaving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            exchange.client_gone = exchange.abandoned = True
            raise asyncio.CancelledError
        return work.result()
    finally:
        exchange.unwatch_client(client_left)
        work.cancel()
