"""After the free pieces of a zygote's memory are filled, what is allocated lies in memory that was not used before."""

from __future__ import annotations

import subprocess
import sys

# in a process of its own, whose memory it fills for good
_PROGRAM = """
import ctypes
from pathlib import Path
from weir.kernel_eval.sandbox import full_pages

libc = ctypes.PyDLL(None)
libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)

pieces = [bytes(100) for _ in range(20_000)]
of_c = [libc.malloc(700) for _ in range(2_000)]
del pieces[::2]
for piece in of_c[::2]:
    libc.free(piece)
spans = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
end = libc.sbrk(0)

def is_old(address):
    return any(int(start, 16) <= address < int(stop, 16) for start, stop in spans)

def old_pieces():
    made = [bytes(100) for _ in range(1_000)]
    return sum(is_old(id(one)) for one in made), sum(libc.malloc(700) < end for _ in range(300))

if FILLED:
    full_pages.fill()
print(*old_pieces())
"""


def test_what_is_allocated_after_the_holes_are_filled_lies_in_new_memory() -> None:
    assert _old_pieces(filled=True) == [0, 0]
    scattered = _old_pieces(filled=False)
    assert scattered[0] == 1_000 and scattered[1] == 300


def _old_pieces(*, filled: bool) -> list[int]:
    program = _PROGRAM.replace("FILLED", str(filled))
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return [int(word) for word in printed.split()]
