"""Ctrl-C stops a query, also while DuckDB computes in the main thread and Python's own handler has to wait.

Invariant: afterwards the process's signal handlers are what they were before.
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
    """Run a query in this block, in the main thread; after Ctrl-C it raises KeyboardInterrupt or QueryStopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def wait() -> None:
        while number := receiver.recv(1):
            if number[0] == signal.SIGINT:
                connection.interrupt()

    waiting = threading.Thread(target=wait, name="weir-ctrl-c", daemon=True)
    before = signal.set_wakeup_fd(sender.fileno())  # written by the C handler, whatever the main thread does
    waiting.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.close()
        waiting.join()
        receiver.close()
