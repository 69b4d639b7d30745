"""Keepalives in every long silence, and the end of the work when the client leaves.

Invariant: keepalives never fall between the two halves of another send, and none is sent once the answer has ended. A
client that leaves cancels the task that serves it, once no other client follows its answer; `Exchange.abandoned`
then marks the reason.
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

    __slots__ = ("_content_type", "_exchange", "_interval_s", "_keepalive", "_task")

    def __init__(
        self, exchange: Exchange, interval_s: float, keepalive: Callable[[], bytes], content_type: bytes
    ) -> None:
        """`keepalive` gives what is sent after a silence of `interval_s`; b"" sends nothing."""
        self._exchange = exchange
        self._interval_s = interval_s
        self._keepalive = keepalive
        self._content_type = content_type
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on, until `stop` or the end of the answer; cancels the current task when nobody waits."""
        serving = asyncio.current_task()
        assert serving is not None
        self._exchange.before_end = self.stop
        self._task = asyncio.create_task(self._watch(serving))

    def stop(self) -> None:
        """Stop watching. May be called twice."""
        self._exchange.before_end = None  # else both would be a cycle, which only the garbage collector frees
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self, serving: asyncio.Task[Any]) -> None:
        exchange = self._exchange
        while True:
            try:
                async with asyncio.timeout(max(_LEAST_S, exchange.last_sent_s + self._interval_s - time.monotonic())):
                    await self._until_nobody_waits()
            except TimeoutError:
                await self._keep_alive()
                continue
            if not exchange.ended:
                exchange.abandoned = True
                serving.cancel()
            return

    async def _until_nobody_waits(self) -> None:
        exchange = self._exchange
        if not exchange.client_gone:
            await exchange.until_disconnected()
            exchange.client_gone = True
            if exchange.shared is not None:
                exchange.shared.leave()
        if exchange.shared is not None:
            await exchange.shared.until_nobody_follows()

    async def _keep_alive(self) -> None:
        exchange = self._exchange
        silent_s = time.monotonic() - exchange.last_sent_s
        if silent_s < self._interval_s or exchange.is_sending or exchange.ended:
            return
        exchange.last_sent_s = time.monotonic()
        data = self._keepalive()
        if data:
            await exchange.start(200, self._content_type)
            await exchange.send(data)


async def while_client_stays(exchange: Exchange, work: asyncio.Task[_T]) -> _T:
    """The work's result. Ends the work and raises CancelledError when the client leaves before it is done."""
    leaving = asyncio.create_task(exchange.until_disconnected())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            exchange.client_gone = exchange.abandoned = True
            raise asyncio.CancelledError
        return work.result()
    finally:
        work.cancel()
        leaving.cancel()
