"""Fills the holes in a zygote's memory, so that its children write to pages of their own and not to shared ones.

What a process frees lies scattered over its memory, and is what it allocates next. After a fork, each such place is a
page that has to be copied for the sake of a few bytes, in every child, and in the zygote a huge page that falls apart
when the zygote itself writes to it. So the free pieces are allocated and never freed: of Python's allocator (objects up
to 512 bytes, in pools of one size each) and of the C library's. What comes after that is new memory, which is empty.
Only speed depends on this.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Callable
from pathlib import Path

_STEP = 16
_MAX_SMALL = 512  # larger objects of Python's come from the C library
_EMPTY_BYTES = b"".__sizeof__()
_MAX_LARGE = 64 << 10
_MOST = 200_000  # pieces of one size: a bound, in case memory is laid out in another way

_held: list[object] = []  # for the life of the process

_libc = ctypes.PyDLL(None)
_libc.malloc.restype = _libc.sbrk.restype = ctypes.c_void_p
_libc.malloc.argtypes = (ctypes.c_size_t,)
_libc.sbrk.argtypes = (ctypes.c_long,)


def fill() -> int:
    """Allocate the free pieces of the memory that this process has. Returns their number."""
    before = len(_held)
    num_of_c = _fill_c()
    _fill_python(_Mapped(Path("/proc/self/maps").read_text().splitlines()))
    return len(_held) - before + num_of_c


class _Mapped:
    """The addresses that are mapped."""

    def __init__(self, maps: list[str]) -> None:
        spans = [tuple(int(address, 16) for address in line.split(maxsplit=1)[0].split("-")) for line in maps]
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def __contains__(self, address: object) -> bool:
        assert isinstance(address, int)
        index = bisect.bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]


def _fill_python(mapped: _Mapped) -> None:
    """Of each size, until an object lies in memory that was not mapped before; the largest first, for whole pools."""
    for size in range(_MAX_SMALL, 0, -_STEP):
        make = _maker(size)
        for _ in range(_MOST):
            made = make()
            _held.append(made)
            if id(made) not in mapped:
                break


def _maker(size: int) -> Callable[[], object]:
    """Makes an object of a size in bytes, without a header of the garbage collector."""
    if size == _STEP:
        return object
    if size == 2 * _STEP:
        return lambda: float.fromhex("0x1.8p1")  # 24 bytes
    return lambda: bytes(size - _EMPTY_BYTES)


def _fill_c() -> int:
    end = _libc.sbrk(0)
    num = 0
    for size in _sizes():
        for _ in range(_MOST):
            num += 1
            if not 0 < (_libc.malloc(size) or 0) < end:
                break
    return num


def _sizes() -> list[int]:
    """Usable sizes of chunks, the largest first: all that glibc keeps in bins of one size, and fewer above."""
    large = []
    size = _MAX_LARGE
    while size > 1024:
        large.append(size)
        size = size * 7 // 8
    return [*large, *range(1016, 8, -_STEP)]
