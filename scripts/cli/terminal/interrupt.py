"""Ctrl-C stops a question: also while DuckDB computes in the main thread, where Python's own handler has to wait.

Invariant: what the process does about signals afterwards is what it did before. Not here: limits (query_limits.py).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@contextlib.contextmanager
def interruptible(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Ask within this, in the main thread; KeyboardInterrupt or QueryStopped follows as soon as DuckDB has stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, teller = socket.socketpair()
    teller.setblocking(False)

    def wait() -> None:
        while number := told.recv(1):
            if number[0] == signal.SIGINT:
                connection.interrupt()

    waiting = threading.Thread(target=wait, name="weir-ctrl-c", daemon=True)
    before = signal.set_wakeup_fd(teller.fileno())  # written to by the handler in C, whatever the main thread does
    waiting.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        teller.close()
        waiting.join()
        told.close()
