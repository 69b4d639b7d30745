"""Polling of the catalog on demand: data is read again when a caller needs it and it is older than a limit.

Invariant: however many callers ask at the same time, one read is in progress, and all of them wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Polled:
    """Calls `read` when a caller asks and the last read began more than `every_s` ago."""

    def __init__(self, read: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._began = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    async def fresh(self, *, now: bool = False) -> None:
        """Return when the data is fresh; `now` reads it in any case. Raises what `read` raises."""
        if self._reading is None:
            if not now and time.monotonic() - self._began < self._every_s:
                return
            self._began = time.monotonic()
            self._reading = asyncio.ensure_future(self._run())
        await asyncio.shield(self._reading)

    async def _run(self) -> None:
        try:
            await self._read()
        except BaseException:
            self._began = float("-inf")
            raise
        finally:
            self._reading = None
