"""The time that one candidate may take, over all of its processes and calls.

Each call has its own limit. Many calls that stay just below it could still exhaust the evaluation's limit, which would
be reported as a fault of the server. Invariant: a candidate that uses too much time gets its own timeout. Time that the
judge spends meanwhile (reference, compilers) does not count.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_EXTENSIBLE_SHARE = 0.4  # the candidate has two thirds of the evaluation's time, so that a fifteenth of it remains


class Deadline:
    """The seconds that one candidate has left; they run only while the judge waits for it."""

    def __init__(self, seconds: float) -> None:
        self.total_s = seconds
        self._left_s = seconds
        self._extensible_s = seconds * _EXTENSIBLE_SHARE

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(self._left_s, 0.0)

    def extend(self, seconds: float) -> float:
        """Add time in which the candidate waited for a processor, a fixed share of the whole at most; what was added.

        The bound keeps a candidate that makes itself wait from reaching the evaluation's limit before its own.
        """
        added = max(0.0, min(seconds, self._extensible_s))
        self._extensible_s -= added
        self._left_s += added
        return added

    def refund(self, seconds: float) -> None:
        """Give back seconds of a wait that the candidate did not cause."""
        self._left_s += seconds

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time that the block takes."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._left_s -= time.monotonic() - started
