"""What the engines of one router say of themselves, asked again now and then.

Invariants: no call waits for engines that were asked once and answered, later asks run beside the calls; what was
learned holds until all engines have answered again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
REMEMBERED_S = 30.0
_PAUSE_S = 1.0  # until engines that did not answer are asked again


class Learned(Generic[T]):
    """One thing that engines say."""

    def __init__(self, ask: Callable[[], Awaitable[T | None]], *, remembered_s: float = REMEMBERED_S) -> None:
        """`ask` returns None unless all engines answered."""
        self.value: T | None = None
        self._ask = ask
        self._remembered_s = remembered_s
        self._due_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def learn(self, *, waits: bool = True) -> None:
        """Bring `value` up to date; where nothing is known yet and it `waits`, before it returns."""
        if self._asking is None and time.monotonic() >= self._due_s:
            self._asking = asyncio.create_task(self._learn())
        if waits and self.value is None and self._asking is not None:
            await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Stop asking. May be called twice."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    async def _learn(self) -> None:
        try:
            found = await self._ask()
            self._due_s = time.monotonic() + (_PAUSE_S if found is None else self._remembered_s)
            if found is not None:
                self.value = found
        finally:
            self._asking = None
