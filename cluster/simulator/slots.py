"""The sessions of samples that agents run at a time: `agents.concurrency` of a real run.

Sessions begin in the order in which their samples were started. Invariant: a session has a place from when it begins
until it ends or is aborted, and no more sessions than the limit have one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from weir.cluster.simulator.engine import Request


class Slots:
    """Places for so many sessions; 0: for any number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside: set[Request] = set()
        self._waiting: deque[Request] = deque()

    def enter(self, request: Request) -> bool:
        """Whether a session begins now; else it waits for a place."""
        if self._limit and len(self._inside) >= self._limit:
            self._waiting.append(request)
            return False
        self._inside.add(request)
        return True

    def leave(self, requests: Iterable[Request]) -> list[Request]:
        """Sessions end, or begin no more; returns those that have their places."""
        for request in requests:
            if request in self._inside:
                self._inside.remove(request)
            else:
                self._waiting.remove(request)
        begun = []
        while self._waiting and len(self._inside) < self._limit:
            begun.append(self._waiting.popleft())
            self._inside.add(begun[-1])
        return begun
