"""Sends answers while the client is watched, and records the calls if sending ends early."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from weir.proxy.errors import CallError
from weir.proxy.http.client_watch import ClientWatch
from weir.proxy.http.exchange import Exchange
from weir.store.records.call_record import FinishReason

C = TypeVar("C")
_Of = TypeVar("_Of", contravariant=True)


class CallRecorder(Protocol[_Of]):
    """Records calls that ended before their answer was given."""

    async def cut(self, calls: Sequence[_Of], reason: FinishReason, error: str | None) -> None: ...


class AnswerGuard:
    """Guards the answering of calls."""

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s

    async def answer(
        self,
        exchange: Exchange,
        calls: Sequence[C],
        recorder: CallRecorder[C],
        send: Callable[[Sequence[C]], Awaitable[None]],
        *,
        keepalive: Callable[[], bytes],
        content_type: bytes,
        error_event: Callable[[CallError], bytes] | None = None,
    ) -> bool:
        """`send` the answers; False where an error became the stream's last event.

        `keepalive` gives what is sent in a long silence, under `content_type`. `error_event` makes the last event of a
        stream that broke. Raises `CallError` where nothing was answered yet, and CancelledError.
        """
        watch = ClientWatch(exchange, self._keepalive_s, keepalive, content_type)
        watch.start()
        try:
            await send(calls)
        except asyncio.CancelledError:
            reason = FinishReason.DISCONNECT if exchange.abandoned else FinishReason.ABORT
            await recorder.cut(calls, reason, None)
            raise
        except CallError as error:
            await recorder.cut(calls, FinishReason.ERROR, error.message)
            if error_event is None or not exchange.started:
                raise
            await exchange.end(error_event(error))
            return False
        finally:
            watch.stop()
        return True
