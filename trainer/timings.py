"""Where the time of a round goes: wall seconds of each of its steps, by name.

Invariant: steps that are timed do not overlap, so that what no step names is the round's own remainder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class RoundTimes:
    """Seconds by step; a step that is entered again adds to what it took before."""

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
        """Take in what was timed elsewhere."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
