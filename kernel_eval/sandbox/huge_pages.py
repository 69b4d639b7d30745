"""Moves a zygote's memory into huge pages, which makes forking from it and ending its children cheap.

A fork copies one page table entry for each page that the parent has written, and the child's end releases each. The
heap of a process with torch and Triton is tens of thousands of pages of 4 KiB, or some seventy of 2 MiB. A child that
writes still copies 4 KiB at a time. Only speed depends on this: memory that the operating system does not move (before
Linux 6.1, all of it) stays in small pages. The number of huge pages is in `/health`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from weir.kernel_eval.sandbox import syscalls

_HUGE_BYTES = 2 << 20


def gather() -> int:
    """Move this process's private memory into huge pages, once, before the first fork. Returns their number."""
    return sum(_collapse(start) for start in whole_pages(Path("/proc/self/maps").read_text().splitlines()))


def whole_pages(maps: Iterable[str]) -> Iterator[int]:
    """Addresses where a huge page fits into heap or anonymous memory, from the lines of /proc/PID/maps."""
    for line in maps:
        span, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights.startswith("rw-p") and (not name or name == ["[heap]"]):
            start, end = (int(address, 16) for address in span.split("-"))
            first = -(-start // _HUGE_BYTES) * _HUGE_BYTES
            yield from range(first, end - _HUGE_BYTES + 1, _HUGE_BYTES)


def _collapse(start: int) -> bool:
    try:
        syscalls.collapse(start, _HUGE_BYTES)
    except OSError:  # unmapped, or no huge page is free
        return False
    return True
