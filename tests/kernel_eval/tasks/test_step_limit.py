"""A step of a task's own code may use so much processor time, and wait for longer."""

from __future__ import annotations

import signal
import time

import pytest

from weir.kernel_eval.tasks.step_limit import WALL_FACTOR, time_limit


def test_a_step_that_computes_for_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"longer than 0.1 s of processor time"), time_limit(0.1):
        for _ in iter(int, 1):
            pass


def test_a_step_that_waits_without_end_is_ended() -> None:
    with pytest.raises(TimeoutError, match=f"longer than {0.05 * WALL_FACTOR:g} s"), time_limit(0.05):
        time.sleep(600)


def test_time_that_others_have_is_not_counted() -> None:
    with time_limit(2.0):
        time.sleep(2.2)


def test_the_handlers_and_timers_of_before_are_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGALRM)]
    with time_limit(50.0):
        assert signal.getsignal(signal.SIGPROF) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
