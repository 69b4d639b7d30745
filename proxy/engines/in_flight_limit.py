"""How many calls may be in flight upstream: learned from what it takes and refuses, bounded by a setting. Pure.

It grows and shrinks as TCP's congestion window does (RFC 5681). It starts low. While calls wait, it doubles each round
up to what was taken before, and beyond that grows by answers: by one for each until the upstream first refuses a
call, later by a fraction. A refusal takes off a share, once for all calls that were sent before it, and half a call
each, so that a burst of which a part was refused comes down to the rest. An upstream that answers nothing says nothing
of what a living one takes: the limit shrinks, and what was taken before stays known.
"""

from __future__ import annotations

import math

START = 256  # calls in flight at first, and after a pause of all calls: any listening socket takes so many at once
UNPROVEN = 1024  # reached in rounds, before anything is known of the upstream
ROUND_S = 0.25
KEPT = 0.9
LATER_GROWTH = 1 / 8  # by each answer, once the upstream has refused a call


class InFlightLimit:
    """The limit of one process. Times are of one monotonic clock, in seconds."""

    def __init__(self, most: int) -> None:
        """`most` is the setting that bounds it."""
        self._most = float(most)
        self._value = min(float(START), self._most)
        self._taken = min(float(UNPROVEN), self._most)  # without a refusal
        self._growth = 1.0
        self._decreased_s = -math.inf
        self._has_answered = False  # since the last decrease

    @property
    def calls(self) -> int:
        """The number of calls that may be in flight now; at least 1."""
        return int(self._value)

    @property
    def most(self) -> int:
        """The setting that bounds it."""
        return int(self._most)

    def answered(self, *, calls_wait: bool) -> None:
        """An answer came."""
        self._has_answered = True
        if calls_wait:
            self._value = min(self._value + self._growth, self._most)
            self._taken = max(self._taken, self._value)

    def round_passed(self) -> None:
        """Calls waited for a whole round in which the upstream took what was sent."""
        self._value = max(self._value, min(2 * self._value, self._taken))

    def refused(self, sent_s: float, now_s: float) -> None:
        """The upstream refused or lost a call that was sent at `sent_s`."""
        if sent_s > self._decreased_s:
            self._decreased_s = now_s
            self._value *= KEPT
            if self._has_answered:
                self._taken, self._growth, self._has_answered = self._value, LATER_GROWTH, False
        self._value = max(1.0, self._value - 0.5)

    def restart(self) -> None:
        """Many calls may wait, and nothing was sent for a while: begin low again, without forgetting what was taken."""
        self._value = min(self._value, float(START))
