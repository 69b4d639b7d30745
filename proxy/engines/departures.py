"""Which calls go upstream and when: through an open gate, under the limit on calls in flight, in the queue's order.

A call whose connection is not accepted while others are being answered meets back-pressure: it goes back to its place.
When nothing is being answered, the upstream is dead or not there yet: few calls try, with growing pauses, and calls
that have waited for the time limit since then end with `Unavailable`. Calls with the tag `serve` go first, and do not
wait for the limit that is learned. One event loop owns it.
"""

from __future__ import annotations

import asyncio
import time

from weir.proxy.engines.connections import Connections
from weir.proxy.engines.fair_queue import FairQueue, Ticket
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.in_flight_limit import ROUND_S, InFlightLimit
from weir.proxy.errors import Unavailable
from weir.store.clock import now_us

MAX_PAUSE_S = 1.0  # between two tries while nothing is being answered


class Departures:
    """Lets calls go upstream. A call in flight has a place there from `depart` until `ended` or `refused`."""

    def __init__(
        self,
        gate: Gate,
        limit: InFlightLimit,
        connections: Connections,
        *,
        refused_limit_s: float,
        pause_s: float,
    ) -> None:
        """`connections` are those to the upstream; `pause_s` is the first pause when it is dead, and doubles."""
        self.limit = limit
        self.num_refused = 0
        self._gate = gate
        self._queue = FairQueue()
        self._serve_queue = FairQueue()
        self._refused_limit_s = refused_limit_s
        self._first_pause_s = pause_s
        self._connections = connections
        self._dead_since_s: float | None = None
        self._num_pauses = 0  # since the last answer
        self._pausing: asyncio.TimerHandle | None = None
        self._round: asyncio.TimerHandle | None = None
        gate.on_open = self._restart

    @property
    def waiting(self) -> int:
        """The number of calls that wait."""
        return len(self._queue) + len(self._serve_queue)

    @property
    def held(self) -> int:
        """Those of them that wait for the gate."""
        queues = ((self._serve_queue, True), (self._queue, False))
        return sum(len(queue) for queue, serves in queues if not self._gate.lets_pass(serves=serves))

    async def depart(self, ticket: Ticket) -> int:
        """Wait for a place in flight; returns the wait in microseconds. Raises `Unavailable`."""
        queue = self._serve_queue if ticket.serves else self._queue
        if not queue and self._may_go(serves=ticket.serves):
            self._send(ticket)
            return 0
        started_ns = time.monotonic_ns()
        if ticket.asked_s is None:
            ticket.asked_s = started_ns / 1e9
        granted = ticket.granted = asyncio.get_running_loop().create_future()
        queue.push(ticket)
        self._release()
        try:
            await granted
        except asyncio.CancelledError:
            if ticket.waits:
                queue.remove(ticket)
            elif not granted.cancelled() and granted.exception() is None:
                self.ended(ticket)  # the place came as the client left
            raise
        finally:
            ticket.granted = None
        return (time.monotonic_ns() - started_ns) // 1000

    def ended(self, ticket: Ticket, *, answered: bool = False) -> None:
        """A call is no longer in flight; `answered`: the upstream took it."""
        self._gate.leave()
        if answered:
            self._dead_since_s, self._num_pauses = None, 0
            self.limit.answered(calls_wait=bool(self._queue))
        if self.waiting:
            self._release()

    def refused(self, ticket: Ticket, error: BaseException | None) -> None:
        """A call is no longer in flight: the upstream did not take it, or lost it, for which `error` is the reason."""
        self._gate.leave()
        self.num_refused += 1
        if self._gate.lets_pass(serves=ticket.serves):  # else the engines are being updated
            now_s = time.monotonic()
            self.limit.refused(ticket.sent_s, now_s)
            if not self.is_alive:
                self._pause(now_s, error)
        self._release()

    @property
    def is_alive(self) -> bool:
        """Whether calls may be being answered: some have a connection."""
        return self._connections.in_use > 0

    def is_overdue(self, ticket: Ticket) -> bool:
        """Whether nothing answers, and the call has waited for its time limit since then."""
        if self._dead_since_s is None or self.is_alive:
            return False
        since_s = max(self._dead_since_s, ticket.asked_s or ticket.sent_s)
        return time.monotonic() - since_s >= self._refused_limit_s

    def _may_go(self, *, serves: bool) -> bool:
        places = self.limit.most if serves else self.limit.calls
        passes = self._gate.lets_pass(serves=serves)
        return passes and self._gate.in_flight < places and self._pausing is None

    def _send(self, ticket: Ticket) -> None:
        ticket.sent_s = time.monotonic()
        self._gate.enter()

    def _release(self) -> None:
        """Let calls go, as many as may."""
        for queue, serves in ((self._serve_queue, True), (self._queue, False)):
            while queue and self._may_go(serves=serves):
                ticket = queue.pop(now_us())
                assert ticket.granted is not None
                if not ticket.granted.done():  # else its client has just left, and it is about to learn of it
                    self._send(ticket)
                    ticket.granted.set_result(None)
        if self._queue and self._round is None and self._gate.is_open and self._pausing is None:
            self._round = asyncio.get_running_loop().call_later(ROUND_S, self._end_round, self.num_refused)

    def _end_round(self, refused_before: int) -> None:
        """Raise the limit after a round in which calls waited for it and the upstream took what was sent."""
        self._round = None
        takes = self.num_refused == refused_before and 2 * self._connections.opening <= self._gate.in_flight
        if self._queue and self._gate.is_open and takes:
            self.limit.round_passed()
        self._release()

    def _pause(self, now_s: float, error: BaseException | None) -> None:
        """Send nothing for a while, and end the calls that have waited for too long."""
        self._dead_since_s = now_s if self._dead_since_s is None else self._dead_since_s
        waiting = [*self._serve_queue, *self._queue]
        for ticket in [ticket for ticket in waiting if self.is_overdue(ticket)]:
            (self._serve_queue if ticket.serves else self._queue).remove(ticket)
            if ticket.granted is not None and not ticket.granted.done():
                ticket.granted.set_exception(
                    Unavailable(f"no engine takes calls, this one waited for its turn: {error}")
                )
        if self._pausing is None:
            pause_s = min(self._first_pause_s * 2**self._num_pauses, MAX_PAUSE_S)
            self._num_pauses += 1
            self._pausing = asyncio.get_running_loop().call_later(pause_s, self._end_pause)

    def _end_pause(self) -> None:
        self._pausing = None
        self._release()

    def _restart(self) -> None:
        """The gate opened: what waits goes as fast as the upstream takes it."""
        self.limit.restart()
        self._dead_since_s, self._num_pauses = None, 0
        self._release()
