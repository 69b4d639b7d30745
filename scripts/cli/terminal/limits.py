"""Process limits for a query beyond DuckDB's own: one huge value cannot be interrupted while it is computed.

Invariant: the memory limit holds for the process during the query only; afterwards the old one is restored. For
commands, whose process runs one query at a time; a notebook's connection has DuckDB's limits only. Memory is limited on
Linux.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

MARGIN_MB = 256  # for the answer's rows, beside DuckDB's memory
GRACE_S = 5.0  # time for DuckDB to stop by itself
STATM = Path("/proc/self/statm")


@contextlib.contextmanager
def contained(memory_mb: int, timeout_s: float) -> Iterator[None]:
    """Run a query in this block. A query that does not stop in time ends the process with status 1."""
    with _limited_memory(memory_mb):
        timer = threading.Timer(timeout_s + GRACE_S, _end, [timeout_s])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def _limited_memory(memory_mb: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if STATM.exists():
        held = int(STATM.read_text().split()[5]) * resource.getpagesize()
        wanted = held + (memory_mb + MARGIN_MB) * 2**20
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _end(timeout_s: float) -> None:
    print(
        f"weir: the query was stopped: it took longer than {timeout_s:g} s and made a value that cannot be "
        "interrupted; ask for less",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
