"""How often a call is sent again: by cause, with growing pauses, and without counting while the gate is closed."""

import asyncio
from collections.abc import Callable

import pytest

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.connections import Connections
from weir.proxy.engines.departures import Departures
from weir.proxy.engines.fair_queue import Ticket
from weir.proxy.engines.gate import Gate, PauseMode
from weir.proxy.engines.in_flight_limit import InFlightLimit
from weir.proxy.errors import Unavailable, UpstreamFailed, UpstreamLost, UpstreamNotReached, UpstreamNotTaken
from weir.proxy.pipeline.attempts import MAX_BACKOFF_S, Attempts

REFUSED, LOST = UpstreamNotTaken("refused"), UpstreamLost("lost")
NOT_REACHED = UpstreamNotReached("nobody listens")


def with_attempts(check: Callable[[Attempts, Departures], None], lost_retries: int = 2, **settings: float) -> None:
    """Run a check in an event loop, with a call's attempts and the departures of its process."""

    async def run() -> None:
        config, gate = ProxyConfig(retry_backoff_s=0.1, **settings), Gate(60.0)
        departures = Departures(
            gate, InFlightLimit(8), Connections(), refused_limit_s=config.refused_limit_s, pause_s=0.0
        )
        check(Attempts(config, gate, lost_retries, departures, Ticket(None, "s", 0)), departures)

    asyncio.run(run())


def test_pauses_double_up_to_their_limit() -> None:
    def check(one: Attempts, _: Departures) -> None:
        assert [one.pause_after(REFUSED) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, MAX_BACKOFF_S, MAX_BACKOFF_S]

    with_attempts(check)


def test_a_call_that_engines_lose_is_sent_again_as_often_as_allowed() -> None:
    def check(one: Attempts, _: Departures) -> None:
        assert [one.pause_after(LOST), one.pause_after(LOST)] == [0.1, 0.2]
        with pytest.raises(UpstreamFailed, match="3 times: lost"):
            one.pause_after(LOST)

    with_attempts(check, lost_retries=2)


def test_a_relayed_call_that_was_lost_is_not_sent_again() -> None:
    def check(one: Attempts, _: Departures) -> None:
        with pytest.raises(UpstreamFailed, match="1 times: lost"):
            one.pause_after(LOST)

    with_attempts(check, lost_retries=0)


def test_refusals_are_retried_for_a_limited_time() -> None:
    def check(one: Attempts, _: Departures) -> None:
        with pytest.raises(Unavailable, match="tried 1 times: refused"):
            one.pause_after(REFUSED)

    with_attempts(check, refused_limit_s=0)


def test_a_connection_that_is_not_accepted_is_no_attempt_while_others_are_answered() -> None:
    def check(one: Attempts, departures: Departures) -> None:
        departures._connections.in_use = 1
        for _ in range(100):
            departures.refused(one.ticket, NOT_REACHED)
            assert one.pause_after(NOT_REACHED) == 0.0

    with_attempts(check, refused_limit_s=0)


def test_where_nobody_is_answered_it_is_one_and_ends_at_the_limit() -> None:
    def check(one: Attempts, departures: Departures) -> None:
        departures.refused(one.ticket, NOT_REACHED)
        with pytest.raises(Unavailable, match="tried 1 times: nobody listens"):
            one.pause_after(NOT_REACHED)

    with_attempts(check, refused_limit_s=0)


def test_aborts_are_retried_as_often_as_allowed() -> None:
    def check(one: Attempts, _: Departures) -> None:
        assert one.pause_after_abort(progressed=False) == 0.1
        with pytest.raises(UpstreamFailed, match="aborted the call 2 times"):
            one.pause_after_abort(progressed=False)

    with_attempts(check, abort_retries=1)


def test_a_call_that_got_tokens_between_two_aborts_is_moved_as_often_as_engines_leave() -> None:
    def check(one: Attempts, _: Departures) -> None:
        assert [one.pause_after_abort(progressed=True) for _ in range(100)] == [0.0] * 100
        assert one.pause_after_abort(progressed=False) == 0.1
        assert one.pause_after_abort(progressed=True) == 0.0, "the count begins anew"
        assert one.pause_after_abort(progressed=False) == 0.1

    with_attempts(check, abort_retries=1)


def test_trouble_while_the_gate_is_closed_does_not_count() -> None:
    async def in_closed_gate() -> None:
        gate = Gate(60.0)
        departures = Departures(gate, InFlightLimit(8), Connections(), refused_limit_s=0, pause_s=0.0)
        await gate.close(PauseMode.CONTINUE, 1.0)
        config = ProxyConfig(abort_retries=0, refused_limit_s=0)
        one = Attempts(config, gate, 0, departures, Ticket(None, "s", 0))
        pauses = [one.pause_after(error) for error in (REFUSED, NOT_REACHED, LOST)]
        assert [*pauses, one.pause_after_abort(progressed=False)] == [0.0, 0.0, 0.0, 0.0]
        gate.open()

    asyncio.run(in_closed_gate())
