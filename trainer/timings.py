"""Wall time of a round's steps, by name.

Invariant: timed steps do not overlap, so that the rest of a round's time is its own overhead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class RoundTimes:
    """Seconds by step, summed over all runs of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a block."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add({name: time.monotonic() - started})

    def add(self, seconds: dict[str, float]) -> None:
        """Add seconds that were timed elsewhere."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
