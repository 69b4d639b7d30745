"""Wall time of a round's steps, by name, and when each of them ran.

Invariant: timed steps do not overlap, so that the rest of a round's time is its own overhead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

Span = tuple[str, float, float]  # the step's name, its beginning in Unix seconds, and its seconds


class RoundTimes:
    """Seconds by step, summed over all runs of a step, and each run of one in the order in which they ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.timeline: list[Span] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a block."""
        began, started = time.time(), time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self.timeline.append((name, began, seconds))
