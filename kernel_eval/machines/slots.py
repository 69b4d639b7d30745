"""Slots of a pool: evaluations take them in order of arrival; checks of tasks wait until no evaluation does."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from enum import IntEnum


class Priority(IntEnum):
    """Who goes first."""

    EVALUATION = 0
    TASK_CHECK = 1


class Slots:
    """A number of slots in one event loop. A waiter that is cancelled loses its place, and no slot is lost."""

    def __init__(self, num_slots: int) -> None:
        self._free = num_slots
        self._waiters: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def acquire(self, priority: Priority) -> None:
        """Take a slot; wait for one that `release` gives back."""
        if self._free and not self._waiters:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (priority, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot came together with the cancellation
            raise

    def release(self) -> None:
        """Give a slot to the first waiter, or keep it free."""
        while self._waiters:
            turn = heapq.heappop(self._waiters)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
