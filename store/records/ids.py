"""Identifiers: a prefix for the kind, 48 bits of milliseconds and 80 random bits in hexadecimal.

They sort by creation time, and two processes never make the same one. Random bits are drawn for many identifiers at
once, because each drawing is a system call; a forked child draws its own.
"""

from __future__ import annotations

import os
import re
import time

_DIGITS = 20  # of the random part
_AT_ONCE = 64  # identifiers

_FORM = re.compile(rf"[a-z]+_([0-9a-f]{{12}})[0-9a-f]{{{_DIGITS}}}")

_drawn: list[str] = []  # a list's `pop` is one step, also among threads
os.register_at_fork(after_in_child=_drawn.clear)


def new_id(prefix: str) -> str:
    """A new identifier, e.g. `new_id("call")` → `call_019a…` (32 hexadecimal digits)."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{_random_part()}"


def made_us(identifier: str) -> int | None:
    """When an identifier was made, to the millisecond; None where it is not one of these."""
    found = _FORM.fullmatch(identifier)
    return None if found is None else int(found[1], 16) * 1000


def _random_part() -> str:
    try:
        return _drawn.pop()
    except IndexError:
        digits = os.urandom(_AT_ONCE * _DIGITS // 2).hex()
        first, *others = (digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS))
        _drawn.extend(others)
        return first
