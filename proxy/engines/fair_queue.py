"""The calls that wait to go upstream: oldest first, in turns between access keys, and between the sessions of a key.

Invariants: keys that have calls waiting are served equally often; of a session with several calls waiting, the next one
queues up behind everybody when the one before it leaves; a call that comes back gets its earlier place; where every
session has one call, the order is that of arrival. A call that is removed no longer counts at once. Pure.
"""

from __future__ import annotations

import heapq
import itertools
from asyncio import Future
from collections.abc import Iterator

_next_number = itertools.count().__next__


class Ticket:
    """One call for as long as it is to be answered; it may wait several times, and keeps its place."""

    __slots__ = (
        *("arrived_us", "asked_s", "granted", "key", "number"),
        *("place_us", "sent_s", "serves", "session", "waits"),
    )

    def __init__(self, key: str | None, session: str, arrived_us: int, *, serves: bool = False) -> None:
        """`key` is the name of an access key; `arrived_us` the time of arrival in unix microseconds.

        `serves`: it has the tag `serve`.
        """
        self.key = key
        self.session = session
        self.arrived_us = arrived_us
        self.serves = serves
        self.number = _next_number()
        self.place_us: int | None = None  # what its turn is decided by: the time when it became its session's next call
        self.asked_s: float | None = None  # when it first waited, by the monotonic clock
        self.sent_s = 0.0
        self.waits = False
        self.granted: Future[None] | None = None  # while it waits


_Entry = tuple[int, int, Ticket]  # place or arrival, number


class FairQueue:
    """Tickets in the order in which they are to go."""

    def __init__(self) -> None:
        self._lines: dict[str | None, _Line] = {}  # by access key: few, so they stay
        self._turn = 0  # of the line that was served last
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[Ticket]:
        return (ticket for line in self._lines.values() for ticket in line.tickets() if ticket.waits)

    def push(self, ticket: Ticket) -> None:
        """Add a call."""
        line = self._lines.get(ticket.key)
        if line is None:
            line = self._lines[ticket.key] = _Line()
        if not line.num_waiting:
            line.turn = max(line.turn, self._turn)
        ticket.waits = True
        line.push(ticket)
        self._len += 1

    def pop(self, now_us: int) -> Ticket:
        """Take the next call out. Raises IndexError where none waits."""
        if not self._len:
            raise IndexError("no call waits")
        waiting = [line for line in self._lines.values() if line.num_waiting]
        line = waiting[0] if len(waiting) == 1 else min(waiting, key=lambda line: (line.turn, line.place()))
        self._turn = line.turn
        line.turn += 1
        ticket = line.pop(now_us)
        ticket.waits = False
        self._len -= 1
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Take a waiting call out, because nobody waits for its answer."""
        ticket.waits = False
        self._lines[ticket.key].forget_one()
        self._len -= 1


class _Line:
    """The calls of one key. `_heads` has a call of each session; `_behind` those for which an earlier one has to go.

    Tickets that no longer wait stay until they come up, or are more than the others.
    """

    def __init__(self) -> None:
        self.turn = 0
        self.num_waiting = 0
        self._num_gone = 0
        self._heads: list[_Entry] = []
        self._num_heads: dict[str, int] = {}  # of each session; more than one where a call came back
        self._behind: dict[str, list[_Entry]] = {}

    def tickets(self) -> Iterator[Ticket]:
        for entries in (self._heads, *self._behind.values()):
            for _, _, ticket in entries:
                yield ticket

    def push(self, ticket: Ticket) -> None:
        self.num_waiting += 1
        if ticket.place_us is None and ticket.session in self._num_heads:
            heapq.heappush(self._behind.setdefault(ticket.session, []), (ticket.arrived_us, ticket.number, ticket))
        else:
            self._put_first(ticket, ticket.arrived_us if ticket.place_us is None else ticket.place_us)

    def place(self) -> tuple[int, int]:
        """What the first call's turn is decided by."""
        self._drop_gone()
        return self._heads[0][:2]

    def pop(self, now_us: int) -> Ticket:
        self._drop_gone()
        self.num_waiting -= 1
        return self._pop_first(now_us)

    def forget_one(self) -> None:
        """One of the tickets was marked as gone."""
        self.num_waiting -= 1
        self._num_gone += 1
        if self._num_gone > self.num_waiting:
            kept = [ticket for ticket in self.tickets() if ticket.waits]
            self._heads, self._num_heads, self._behind, self._num_gone = [], {}, {}, 0
            self.num_waiting = 0
            for ticket in sorted(kept, key=lambda ticket: (ticket.place_us is None, ticket.arrived_us, ticket.number)):
                self.push(ticket)

    def _drop_gone(self) -> None:
        while not self._heads[0][2].waits:
            self._num_gone -= 1
            self._pop_first(self._heads[0][0])  # the session's next call inherits the place

    def _pop_first(self, next_place_us: int) -> Ticket:
        _, _, ticket = heapq.heappop(self._heads)
        others = self._num_heads.pop(ticket.session) - 1
        behind = self._behind.get(ticket.session)
        if others:
            self._num_heads[ticket.session] = others
        elif behind:
            arrived_us, _, following = heapq.heappop(behind)
            if not behind:
                del self._behind[ticket.session]
            self._put_first(following, max(arrived_us, next_place_us))
        return ticket

    def _put_first(self, ticket: Ticket, place_us: int) -> None:
        ticket.place_us = place_us
        self._num_heads[ticket.session] = self._num_heads.get(ticket.session, 0) + 1
        heapq.heappush(self._heads, (place_us, ticket.number, ticket))
