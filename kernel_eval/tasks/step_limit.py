"""The time limit of one step of a task's own code: processor time, which neighbours on the machine do not use up.

A step that sleeps or waits uses none; its wall time is limited too, more generously.
"""

from __future__ import annotations

import contextlib
import signal
import types
from collections.abc import Iterator

WALL_FACTOR = 8.0  # wall time that a step may take, relative to its processor time


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in what runs after so many processor seconds, or `WALL_FACTOR` times as much wall time."""
    wall = seconds * WALL_FACTOR
    limits = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds, f"it took longer than {seconds:g} s of processor time"),
        (signal.SIGALRM, signal.ITIMER_REAL, wall, f"it took longer than {wall:g} s"),
    )
    with contextlib.ExitStack() as stack:
        for number, timer, limit, message in limits:
            stack.callback(signal.signal, number, signal.signal(number, _raising(message)))
            stack.callback(signal.setitimer, timer, 0)
            signal.setitimer(timer, limit)
        yield


def _raising(message: str) -> signal._HANDLER:
    def expire(signum: int, frame: types.FrameType | None) -> None:
        raise TimeoutError(message)

    return expire
