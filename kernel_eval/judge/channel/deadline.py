"""How long a judge waits for a candidate, all of its processes and calls together.

Each call has a limit of its own; many calls that stay just below theirs would use up the time of the evaluation, which
is the server's, and end it with a fault of the server. Invariant: what a candidate takes is always its own timeout.
What its judge does meanwhile (the reference, compilers) is not counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Patience:
    """What is left of one evaluation's seconds."""

    def __init__(self, seconds: float) -> None:
        self.total_s = seconds
        self._left_s = seconds

    @property
    def left_s(self) -> float:
        """Never negative."""
        return max(self._left_s, 0.0)

    def give_back(self, seconds: float) -> None:
        """Of what is being counted, this was not the candidate's doing."""
        self._left_s += seconds

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count what the block takes."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._left_s -= time.monotonic() - started
