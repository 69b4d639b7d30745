"""Ctrl-C and SIGTERM, as a wait that they end, for commands that run until they are interrupted.

A handler runs within the main thread, between any two of its steps. Where that thread waits for a threading.Event, it
may hold the event's lock; a handler that sets the event then waits for ever for the thread that it interrupted. A pipe
has no lock.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """From its construction on, in the main thread: SIGINT and SIGTERM ask to stop, and do nothing else."""

    def __init__(self) -> None:
        self._receiver, self._sender = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in SIGNALS:
            signal.signal(number, lambda *_: self._ask())

    def wait(self, timeout_s: float) -> bool:
        """Wait this long at most; whether a stop was asked for, also before."""
        return bool(select.select([self._receiver], [], [], timeout_s)[0])

    def _ask(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it was asked for often enough
            os.write(self._sender, b"s")
