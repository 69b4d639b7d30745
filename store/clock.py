"""The wall clock of records and catalog rows: Unix time in whole microseconds."""

from __future__ import annotations

import time


def now_us() -> int:
    """Unix time in microseconds."""
    return time.time_ns() // 1000
