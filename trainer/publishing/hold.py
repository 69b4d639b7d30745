"""How long calls wait at the gates for one publish: from when the first gate is asked to close until all are opened.

Invariant: once it has begun, no step may take longer than what is left of it for that step, so that its limit bounds
their sum. What engines need to load is not shortened by it: those that need longer are left out.
"""

from __future__ import annotations

import time

# Shares of the limit, by which engines are paused, have loaded, and have said what they serve
PAUSED, LOADED, READ_BACK = 0.3, 0.75, 0.9
LEAST_S = 0.001


class Hold:
    """The time of one publish that calls may be held; without a limit every step has its own."""

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit_s = limit_s
        self._began_s: float | None = None

    def begin(self) -> None:
        """Gates begin to close."""
        self._began_s = time.monotonic()

    def left_s(self, share: float = 1.0) -> float | None:
        """Seconds until this share of the limit is over, at least hardly any; None where nothing bounds them."""
        if self.limit_s is None or self._began_s is None:
            return None
        return max(self._began_s + share * self.limit_s - time.monotonic(), LEAST_S)

    def within(self, step_s: float, share: float = 1.0) -> float:
        """The limit of a step that may take so long by itself."""
        left_s = self.left_s(share)
        return step_s if left_s is None else min(step_s, left_s)

    def is_over(self, share: float = 1.0) -> bool:
        """Whether this share of the limit is over."""
        left_s = self.left_s(share)
        return left_s is not None and left_s <= LEAST_S
