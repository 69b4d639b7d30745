"""How often a call is sent again: by cause, with growing pauses, and without counting while the gate is closed."""

import asyncio

import pytest

from weir.proxy.config import ProxyConfig
from weir.proxy.engines.gate import Gate, PauseMode
from weir.proxy.errors import Unavailable, UpstreamFailed, UpstreamLost, UpstreamNotTaken
from weir.proxy.pipeline.attempts import MAX_BACKOFF_S, Attempts

REFUSED, LOST = UpstreamNotTaken("refused"), UpstreamLost("lost")


def attempts(lost_retries: int = 2, **settings: float) -> Attempts:
    return Attempts(ProxyConfig(retry_backoff_s=0.1, **settings), Gate(60.0), lost_retries)


def test_pauses_double_up_to_their_limit() -> None:
    one = attempts()
    assert [one.pause_after(REFUSED) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, MAX_BACKOFF_S, MAX_BACKOFF_S]


def test_a_call_that_engines_lose_is_sent_again_as_often_as_allowed() -> None:
    one = attempts(lost_retries=2)
    assert [one.pause_after(LOST), one.pause_after(LOST)] == [0.1, 0.2]
    with pytest.raises(UpstreamFailed, match="3 times: lost"):
        one.pause_after(LOST)


def test_a_relayed_call_that_was_lost_is_not_sent_again() -> None:
    with pytest.raises(UpstreamFailed, match="1 times: lost"):
        attempts(lost_retries=0).pause_after(LOST)


def test_refusals_are_retried_for_a_limited_time() -> None:
    with pytest.raises(Unavailable, match="tried 1 times: refused"):
        attempts(refused_limit_s=0).pause_after(REFUSED)


def test_aborts_are_retried_as_often_as_allowed() -> None:
    one = attempts(abort_retries=1)
    assert one.pause_after_abort() == 0.1
    with pytest.raises(UpstreamFailed, match="aborted the call 2 times"):
        one.pause_after_abort()


def test_trouble_while_the_gate_is_closed_does_not_count() -> None:
    async def in_closed_gate() -> None:
        gate = Gate(60.0)
        await gate.close(PauseMode.CONTINUE, 1.0)
        one = Attempts(ProxyConfig(abort_retries=0, refused_limit_s=0), gate, 0)
        assert [one.pause_after(REFUSED), one.pause_after(LOST), one.pause_after_abort()] == [0.0, 0.0, 0.0]
        gate.open()

    asyncio.run(in_closed_gate())
