"""Holds groups back while the trainer has as many as it can use: back-pressure of a continuous run.

A group sampled at version v is trained on in a round whose parent is at most v + max_staleness. So the rounds that can
still use a group that starts now number `max_staleness + 1`, and one fewer while a round trains, since its version
comes first. Each uses `groups_per_round`. Invariant: a group starts only if, with it, the groups that run or are ready
are no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the trainer has and can use.

    Attributes:
        ready: Groups that a round could claim now.
        training: Whether a round is open.
    """

    ready: int
    training: bool


def most_groups(groups_per_round: int, max_staleness: int, *, training: bool) -> int:
    """Groups that may run or be ready, so that none of them will be too stale for the round that reaches it."""
    return groups_per_round * (max_staleness + (0 if training else 1))


class Pressure:
    """Releases a permit for each group that may start."""

    def __init__(self, groups_per_round: int, max_staleness: int, read: Callable[[], Demand]) -> None:
        """`read` is called in a thread, about once a second."""
        self.permits = asyncio.Semaphore(0)
        self.waiting = False
        self._groups_per_round, self._max_staleness, self._read = groups_per_round, max_staleness, read
        self._given = self._ended = 0

    def end(self) -> None:
        """A group has ended."""
        self._ended += 1

    async def feed(self, on_wait: Callable[[int, int], None]) -> None:
        """Release permits until cancelled; `on_wait(groups, most)` is called when the trainer's need is met.

        It is called once two readings agree: a reading in which a group ends counts it twice.
        """
        before = 0
        while True:
            running = self._given - self._ended  # before the ready ones: a group that ends now counts twice, never not
            demand = await asyncio.to_thread(self._read)
            most = most_groups(self._groups_per_round, self._max_staleness, training=demand.training)
            groups = running + demand.ready
            for _ in range(most - groups):
                self._given += 1
                self.permits.release()
            if groups < most:
                self.waiting = False
            elif groups == before and not self.waiting:
                self.waiting = True
                on_wait(groups, most)
            before = groups
            await asyncio.sleep(POLL_S)
