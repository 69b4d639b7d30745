"""Moves a zygote's memory into huge pages, which makes forking from it and ending its children cheap.

A fork copies one page table entry for each page that the parent has written, and the child's end releases each. The
heap of a process with torch and Triton is tens of thousands of pages of 4 KiB, or some seventy of 2 MiB. A child that
writes still copies 4 KiB at a time. Entries for a library's code are not copied: each child has the pages of the
compiler that it runs mapped anew, a thousand faults. So the code that the zygote has run is copied into huge pages,
too, at its own addresses, after which a child has it from the fork. Only speed depends on this: what the operating
system does not move (before Linux 6.1, all data) stays in small pages. The number of huge pages is in `/health`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from weir.kernel_eval.sandbox import syscalls

_HUGE_BYTES = 2 << 20
_SMALL_BYTES = 4 << 10
_PRESENT = 1 << 63
_MIN_PRESENT = 256  # small pages of a huge one that are mapped; code that was hardly used is not worth the memory


def gather(maps: list[str]) -> int:
    """Move this process's private memory and the code that it uses into huge pages, once, before the first fork.

    `maps`: the lines of /proc/self/maps to which this is limited. The process must have one thread. Returns the number
    of huge pages.
    """
    num_huge = sum(_moved(syscalls.collapse, start) for start in whole_pages(maps))
    return num_huge + sum(_moved(syscalls.copy_code, start) for start in _used_code(maps))


def _used_code(maps: Iterable[str]) -> list[int]:
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as page_map:
            return [start for start in whole_pages(maps, code=True) if _num_present(page_map, start) >= _MIN_PRESENT]
    except OSError:  # some sandboxes have no page map
        return []


def whole_pages(maps: Iterable[str], *, code: bool = False) -> Iterator[int]:
    """Addresses where a huge page fits into heap or anonymous memory, from the lines of /proc/PID/maps.

    With `code`, into the code of files.
    """
    for line in maps:
        span, rights, _, _, _, *name = line.split(maxsplit=5)
        is_code = rights == "r-xp" and name and name[0].startswith("/")
        is_data = rights.startswith("rw-p") and (not name or name == ["[heap]"])
        if is_code if code else is_data:
            start, end = (int(address, 16) for address in span.split("-"))
            first = -(-start // _HUGE_BYTES) * _HUGE_BYTES
            yield from range(first, end - _HUGE_BYTES + 1, _HUGE_BYTES)


def _num_present(page_map: BinaryIO, start: int) -> int:
    """How many small pages of a huge one are mapped now; 8 bytes each in /proc/PID/pagemap."""
    page_map.seek(start // _SMALL_BYTES * 8)
    entries = page_map.read(_HUGE_BYTES // _SMALL_BYTES * 8)
    return sum(1 for (entry,) in struct.iter_unpack("<Q", entries) if entry & _PRESENT)


def _moved(move: Callable[[int, int], None], start: int) -> bool:
    try:
        move(start, _HUGE_BYTES)
    except OSError:  # unmapped, no huge page is free, or code may not be changed
        return False
    return True
