"""How often one call is sent upstream again, and how long it pauses before each time.

The proxy owns these retries, because it alone knows what may be sent again. Failures while the gate is closed are
expected and do not count. A piece that an engine may have taken is repeated rarely, so that a call which kills engines
cannot kill them all. A connection that is not accepted says nothing of the piece: while others are being answered it is
no attempt, and the piece waits for its turn again.
"""

from __future__ import annotations

import time

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.departures import Departures
from weir.proxy.engines.fair_queue import Ticket
from weir.proxy.engines.gate import Gate
from weir.proxy.errors import Unavailable, UpstreamFailed, UpstreamLost, UpstreamNotReached, UpstreamNotTaken

MAX_BACKOFF_S = 1.0  # between two tries of a call that no engine took


class Attempts:
    """The attempts of one call, counted by what ended them."""

    __slots__ = (
        *("_aborted", "_config", "_departures", "_gate", "_lost", "_lost_retries"),
        *("_refused", "_refused_since", "ticket"),
    )

    def __init__(
        self, config: ProxyConfig, gate: Gate, lost_retries: int, departures: Departures, ticket: Ticket
    ) -> None:
        """`ticket` is the call's among the `departures`."""
        self.ticket = ticket
        self._config = config
        self._gate = gate
        self._lost_retries = lost_retries
        self._departures = departures
        self._refused = 0
        self._refused_since: float | None = None
        self._lost = 0
        self._aborted = 0

    def pause_after(self, error: UpstreamNotTaken | UpstreamLost) -> float:
        """Seconds to wait before the call is sent again. Raises `Unavailable` or `UpstreamFailed` at the limit."""
        if not self._gate.lets_pass(serves=self.ticket.serves):
            return 0.0
        if isinstance(error, UpstreamNotReached):
            self._refused += 1
            if self._departures.is_overdue(self.ticket):
                raise self._unavailable(error)
            return 0.0  # its turn comes when others may go as well
        if isinstance(error, UpstreamNotTaken):
            self._refused += 1
            self._refused_since = self._refused_since or time.monotonic()
            if time.monotonic() - self._refused_since >= self._config.refused_limit_s:
                raise self._unavailable(error)
            return min(self._backoff_s(self._refused), MAX_BACKOFF_S)
        self._refused_since = None  # one took it
        self._lost += 1
        if self._lost > self._lost_retries:
            raise UpstreamFailed(f"engines failed during the call, {self._lost} times: {error}") from error
        return self._backoff_s(self._lost)

    def pause_after_abort(self, *, progressed: bool) -> float:
        """Seconds to wait after an engine aborted the call. Raises `UpstreamFailed` at the limit.

        A call that `progressed` was moved: a long one meets many engines that leave the rotation.
        """
        if progressed:
            self._aborted = 0
        if progressed or not self._gate.lets_pass(serves=self.ticket.serves):
            return 0.0
        self._aborted += 1
        if self._aborted > self._config.abort_retries:
            raise UpstreamFailed(f"the engine aborted the call {self._aborted} times while the gate was open")
        return self._backoff_s(self._aborted)

    def _unavailable(self, error: UpstreamNotTaken) -> Unavailable:
        unavailable = Unavailable(f"no engine took the call, tried {self._refused} times: {error}")
        unavailable.__cause__ = error
        return unavailable

    def _backoff_s(self, times: int) -> float:
        return float(self._config.retry_backoff_s * 2 ** (times - 1))
