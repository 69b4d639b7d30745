"""Admission control: how many requests are served at the same time, and how many wait in a queue.

Invariants: at most `max_concurrent` requests have a turn and at most `max_queued` more have a place; the queue is first
in, first out; a request that ends gives back its turn and its place. A request has its place before its body is read,
so that a refused one costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import Self

from weir.proxy.errors import Overloaded


class Admission:
    """Counts places and turns. One event loop owns it."""

    def __init__(self, max_concurrent: int, max_queued: int) -> None:
        self.num_places = 0
        self.num_turns = 0
        self._max_concurrent = max_concurrent
        self._max_places = max_concurrent + max_queued
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._waiting)

    def place(self) -> Place:
        """A place for one request, as a context manager. Raises `Overloaded` where there is none."""
        if self.num_places >= self._max_places:
            raise Overloaded(
                f"the proxy is full: {self._max_concurrent} requests are served at a time and "
                f"{self._max_places - self._max_concurrent} wait; try again later, or raise proxy.max_concurrent or "
                "proxy.max_queued"
            )
        return Place(self)

    def is_free(self) -> bool:
        """Whether a turn is free."""
        return self.num_turns < self._max_concurrent

    def next_turn(self) -> asyncio.Future[None]:
        """Join the queue; the future is done when the turn has come."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(asked)
        return asked

    def forget(self, asked: asyncio.Future[None]) -> None:
        """Leave the queue."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(asked)

    def pass_on(self) -> None:
        """End a turn and give it to the next request in the queue."""
        self.num_turns -= 1
        while self._waiting and self.is_free():
            asked = self._waiting.popleft()
            if not asked.done():
                self.num_turns += 1
                asked.set_result(None)


class Place:
    """The place of one request, as a context manager; `turn` waits for its turn."""

    __slots__ = ("_admission", "_has_turn", "waits")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._has_turn = False
        self.waits = False

    def __enter__(self) -> Self:
        self._admission.num_places += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._admission.num_places -= 1
        if self._has_turn:
            self._has_turn = False
            self._admission.pass_on()

    async def turn(self) -> None:
        """Wait for this request's turn, which lasts until its place is left."""
        admission = self._admission
        if admission.is_free():
            admission.num_turns += 1
            self._has_turn = True
            return
        asked = admission.next_turn()
        self.waits = True
        try:
            await asked
        except asyncio.CancelledError:
            if asked.done() and not asked.cancelled():
                admission.pass_on()  # the turn came as the client left
            else:
                admission.forget(asked)
            raise
        finally:
            self.waits = False
        self._has_turn = True
