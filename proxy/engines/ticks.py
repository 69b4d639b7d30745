"""One timer for all streams of an event loop: what they read at its ticks costs one wake-up of the loop in all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_AFTER_TICK = 1 / 16  # of the interval between two ticks


class Ticks:
    """The timer that all streams share."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def add(self, read: Callable[[], None], interval_s: float) -> None:
        """Call `read` at the next tick."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(until_tick_s(interval_s, time.monotonic()), self._read)
        self._waiting.append(read)

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, []
        for read in waiting:
            read()


def until_tick_s(interval_s: float, now_s: float) -> float:
    """Seconds until the next tick, and a little: a timer may fire early by a millisecond, which is no tick of its own.

    At most the interval and that little.
    """
    return interval_s - now_s % interval_s + interval_s * _AFTER_TICK
