"""The way of one piece of a call upstream: its turn to go, its place in flight, what its end says of the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.departures import Departures
from weir.proxy.engines.fair_queue import Ticket
from weir.proxy.engines.gate import Gate
from weir.proxy.engines.versions import EngineVersions, Served
from weir.proxy.engines.watch import ended
from weir.proxy.errors import CallError, UpstreamLost, UpstreamNotTaken
from weir.proxy.metrics import Metrics
from weir.proxy.pipeline.attempts import Attempts
from weir.proxy.recording.call import CallInProgress
from weir.store.log.intents import NO_SLOT, Intents


class Dispatch:
    """Departures and retry policy, as all calls of one process share them."""

    def __init__(
        self,
        config: ProxyConfig,
        gate: Gate,
        departures: Departures,
        metrics: Metrics,
        *,
        on_trouble: Callable[[], asyncio.Future[None]],
        lost_retries: int,
        intents: Intents,
        versions: EngineVersions | None = None,
    ) -> None:
        """`on_trouble` has the engines checked (see `ended`); `versions` where answers do not name their weights."""
        self.gate = gate
        self.departures = departures
        self.versions = versions
        self._intents = intents
        self._config = config
        self._metrics = metrics
        self._on_trouble = on_trouble
        self._lost_retries = lost_retries

    def attempts(self, call: CallInProgress) -> Attempts:
        """The attempts of a new call."""
        member = call.membership
        ticket = Ticket(call.access_key, member.session_id, call.started_us, serves=member.serves)
        return Attempts(self._config, self.gate, self._lost_retries, self.departures, ticket)

    def flight(self, call: CallInProgress, attempts: Attempts) -> Flight:
        """One way upstream and back, as a context."""
        return Flight(self, call, attempts.ticket)

    def note_intent(self, call: CallInProgress) -> None:
        """A call goes upstream, for the first time or again."""
        if call.intent == NO_SLOT:
            member = call.membership
            call.intent = self._intents.begin(call.call_id, member.session_id, member.group_id, call.started_us)

    def count_wait(self, call: CallInProgress, waited_us: int) -> None:
        """A call waited for its turn."""
        call.held_us += waited_us
        self._metrics.hold_seconds.observe(waited_us / 1e6)
        if call.membership.serves:
            self._metrics.serve_hold_seconds.observe(waited_us / 1e6)

    async def wait_after(self, error: UpstreamNotTaken | UpstreamLost, attempts: Attempts) -> None:
        """Count the trouble, report it, and wait before the next attempt. Raises what `Attempts` raises.

        A lost call also waits until the engines were checked: the router would send it to the dead one again.
        """
        self._metrics.upstream_errors.labels(kind=type(error).__name__).inc()
        check = self._on_trouble() if self.gate.is_open else None
        await asyncio.sleep(attempts.pause_after(error))
        if check is not None and isinstance(error, UpstreamLost):
            await ended(check)


class Flight:
    """A piece on its way, from its turn in the queue to its end; the context gives the weights that are served."""

    __slots__ = ("_call", "_dispatch", "_ticket", "was_turned_away")

    def __init__(self, dispatch: Dispatch, call: CallInProgress, ticket: Ticket) -> None:
        self._dispatch = dispatch
        self._call = call
        self._ticket = ticket
        self.was_turned_away = False  # by an answer that the agent gets

    async def __aenter__(self) -> Served | None:
        """Wait for a place in flight. Raises `Unavailable`."""
        call = self._call
        call.waiting = True
        try:
            served = await self._departed()
        finally:
            call.waiting = False
        self._dispatch.note_intent(call)
        return served

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        departures = self._dispatch.departures
        if isinstance(error, UpstreamNotTaken | UpstreamLost) or (error is None and self.was_turned_away):
            departures.refused(self._ticket, error)
        else:
            departures.ended(self._ticket, answered=error is None or isinstance(error, CallError))

    async def _departed(self) -> Served | None:
        dispatch = self._dispatch
        departures, versions = dispatch.departures, dispatch.versions
        while True:
            waited_us = await departures.depart(self._ticket)
            if waited_us:
                dispatch.count_wait(self._call, waited_us)
            if versions is None:
                return None
            try:
                served = await versions.now()
            except BaseException:
                departures.ended(self._ticket)
                raise
            if dispatch.gate.lets_pass(serves=self._ticket.serves):
                return served
            departures.ended(self._ticket)  # the gate closed while the engines were asked
