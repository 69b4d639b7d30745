"""What this process knows from the catalog, read again before it is older than a limit.

Invariant: however many ask at the same time, one read is under way, and all of them wait for it. Not here: what is
read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Polled:
    """Calls `read` when somebody asks and the last read began longer than `every_s` ago."""

    def __init__(self, read: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._began = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    async def fresh(self, *, now: bool = False) -> None:
        """Return when the knowledge is fresh; `now` reads even if it is. Raises what `read` raises."""
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
