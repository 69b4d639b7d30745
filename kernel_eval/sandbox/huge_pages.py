"""Huge pages for what a zygote holds, so that forking from it, and ending what was forked, costs little.

A fork copies one entry of the page table for each page that the parent has written, and an end gives each back. The
heap of a process with torch and Triton is tens of thousands of pages of 4 KiB, and some seventy of 2 MiB. A child that
writes still copies 4 KiB at a time. Only speed depends on this: what the operating system refuses (before Linux 6.1,
all of it) stays as it was, and how many pages there are is in `/health`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from weir.kernel_eval.sandbox import syscalls

_HUGE_BYTES = 2 << 20


def gather() -> int:
    """Move the private memory of this process into huge pages; how many it became. Once, before the first fork."""
    return sum(_collapse(start) for start in whole_pages(Path("/proc/self/maps").read_text().splitlines()))


def whole_pages(maps: Iterable[str]) -> Iterator[int]:
    """Where in a process's heap and anonymous memory a huge page fits. From lines of /proc/PID/maps."""
    for line in maps:
        span, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights.startswith("rw-p") and (not name or name == ["[heap]"]):
            start, end = (int(address, 16) for address in span.split("-"))
            first = -(-start // _HUGE_BYTES) * _HUGE_BYTES
            yield from range(first, end - _HUGE_BYTES + 1, _HUGE_BYTES)


def _collapse(start: int) -> bool:
    try:
        syscalls.collapse(start, _HUGE_BYTES)
    except OSError:  # nothing lies there, or no huge page is free: it stays as it was
        return False
    return True
