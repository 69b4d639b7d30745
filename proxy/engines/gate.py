"""The gate: where calls wait while weights are exchanged. open → closing → closed → open.

Mode `continue` closes at once: new pieces wait; those in flight end when the engines abort them, and their calls resume
once the gate opens. Mode `drain` first lets pieces in flight finish, up to a limit. A gate that stays closed past its
limit opens by itself, on whatever weights the engines have, logs a warning and calls `on_expired`. Whoever closes it
may let calls with the tag `serve` pass, for which engines are left; and may close it for a lease that it renews: a gate
whose lease was not renewed is abandoned. It stays closed, and `on_abandoned` opens it once engines are fit to serve.
One event loop owns it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable

LATE_S = 1.0  # a lease that ends so late was perhaps renewed, but this process stood still: it lasts once more

logger = logging.getLogger("weir.proxy.engines.gate")


class GateState(enum.StrEnum):
    """Whether pieces of calls may pass."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class PauseMode(enum.StrEnum):
    """Whether calls in flight are aborted and resumed, or finish, when the gate closes."""

    CONTINUE = "continue"
    DRAIN = "drain"


class Gate:
    """Counts pieces in flight, and says whether further ones may pass (`departures.py`)."""

    def __init__(
        self,
        limit_s: float,
        on_expired: Callable[[], None] = lambda: None,
        on_abandoned: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = GateState.OPEN
        self.in_flight = 0
        self.times_closed = 0
        self.times_expired = 0
        self.opened_by_limit = False
        self.is_abandoned = False  # not open, and whoever closed it is gone
        self.serve_passes = False  # while it is not open
        self.on_open: Callable[[], None] = lambda: None  # called when it has opened
        self._limit_s = limit_s
        self._on_expired = on_expired
        self._on_abandoned = on_abandoned
        self._idle = asyncio.Event()
        self._idle.set()
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def is_open(self) -> bool:
        """Whether a piece may be sent now."""
        return self.state is GateState.OPEN

    def lets_pass(self, *, serves: bool) -> bool:
        """Whether a piece of a call with or without the tag `serve` may be sent now."""
        return self.is_open or (serves and self.serve_passes)

    def enter(self) -> None:
        """A piece goes upstream."""
        self.in_flight += 1
        self._idle.clear()

    def leave(self) -> None:
        """A piece that went upstream has ended."""
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()

    async def close(
        self, mode: PauseMode, drain_limit_s: float, *, serve_passes: bool = False, lease_s: float | None = None
    ) -> None:
        """Close; in mode `drain` once pieces in flight finished or the limit passed. Closing again renews the limit.

        `serve_passes`: calls with the tag `serve` are not held, unless somebody else holds them already. `lease_s`: the
        gate is abandoned unless it is renewed or closed again within this time.
        """
        self.serve_passes = serve_passes and (self.is_open or self.serve_passes)
        if self.state is GateState.OPEN:
            self.times_closed += 1
        self.opened_by_limit = False
        self._start_timers(lease_s)
        if mode is PauseMode.DRAIN and self.state is GateState.OPEN:
            self.state = GateState.CLOSING
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), drain_limit_s)
            if self.state is not GateState.CLOSING:
                return  # it was opened, or closed at once, meanwhile
        self.state = GateState.CLOSED

    def renew(self, lease_s: float | None) -> None:
        """Whoever closed the gate lives; a gate that is open stays open."""
        if not self.is_open:
            self._start_timers(lease_s)

    def open(self) -> None:
        """Let all pieces pass. Opening an open gate changes nothing."""
        self._stop_timers()
        if not self.is_open:
            self.state = GateState.OPEN
            self.on_open()

    def open_abandoned(self) -> None:
        """Open in place of whoever closed the gate; one that is not abandoned any more stays as it is."""
        if self.is_abandoned:
            self.times_expired += 1
            self.opened_by_limit = True
            self.open()

    def _start_timers(self, lease_s: float | None) -> None:
        self._stop_timers()
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(self._limit_s, self._expire))
        if lease_s is not None and lease_s < self._limit_s:
            self._timers.append(loop.call_later(lease_s, self._abandon, lease_s, loop.time() + lease_s))

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        self.is_abandoned = False

    def _abandon(self, lease_s: float, due_s: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() > due_s + LATE_S:
            self._timers.append(loop.call_later(lease_s, self._abandon, lease_s, loop.time() + lease_s))
            return
        logger.warning(
            "whoever closed the gate has not renewed it for %g s: it opens once an engine is fit to serve", lease_s
        )
        self.is_abandoned = True
        self._on_abandoned()

    def _expire(self) -> None:
        logger.warning(
            "the gate was closed for its limit of %g s: it opens on the weights that engines have", self._limit_s
        )
        self.times_expired += 1
        self.opened_by_limit = True
        self.open()
        self._on_expired()
