"""Identifiers: a prefix for the kind, 48 bits of milliseconds and 80 random bits in hexadecimal.

They sort by creation time, and two processes never make the same one.
"""

from __future__ import annotations

import os
import time


def new_id(prefix: str) -> str:
    """A new identifier, e.g. `new_id("call")` → `call_019a…` (32 hexadecimal digits)."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
