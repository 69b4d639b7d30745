"""A zygote's memory in huge pages: where one fits, and that the contents stay the same."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from weir.kernel_eval.sandbox import huge_pages, syscalls

_HUGE_BYTES = 2 << 20
_RETURN_42 = {
    "x86_64": bytes.fromhex("b82a000000c3"),  # mov eax, 42; ret
    "aarch64": bytes.fromhex("40058052c0035fd6"),  # mov w0, #42; ret
}

_MAPS = """\
00400000-00900000 r-xp 00000000 fe:00 123 /usr/bin/python3
00a00000-00f00000 rw-p 00000000 00:00 0 [heap]
7f0000100000-7f0000700000 rw-p 00000000 00:00 0
7f0000800000-7f0000900000 rw-p 00000000 00:00 0
7f0000a00000-7f0000e00000 rw-s 00000000 00:01 7 /memfd:x (deleted)
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0 [stack]
"""


def test_huge_pages_fit_into_heap_and_anonymous_memory_alone() -> None:
    found = list(huge_pages.whole_pages(_MAPS.splitlines()))
    assert found == [0xA00000, 0xC00000, 0x7F0000200000, 0x7F0000400000]
    assert list(huge_pages.whole_pages(_MAPS.splitlines(), code=True)) == [0x400000, 0x600000]


def test_code_runs_from_its_copy_at_the_same_address(tmp_path: Path) -> None:
    code = _RETURN_42[os.uname().machine]
    path = tmp_path / "code"
    path.write_bytes(code.ljust(mmap.PAGESIZE, b"\0") * (2 * _HUGE_BYTES // mmap.PAGESIZE))
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    mapped = np.frombuffer(memory, np.uint8).ctypes.data
    start = -(-mapped // _HUGE_BYTES) * _HUGE_BYTES
    function = ctypes.CFUNCTYPE(ctypes.c_int)(start)
    assert function() == 42 and str(path) in _file_at(start)
    syscalls.copy_code(start, _HUGE_BYTES)
    assert function() == 42 and str(path) not in _file_at(start)


def _file_at(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if start <= address < end:
            return line
    raise AssertionError(f"nothing is mapped at {address:x}")


def test_memory_holds_what_it_held_when_its_pages_have_become_huge() -> None:
    with mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        pattern = bytes(range(256)) * (len(memory) // 256)
        memory[:] = pattern
        num_huge = huge_pages.gather(Path("/proc/self/maps").read_text().splitlines())
        assert memory[:] == pattern
        held_kb = sum(
            int(line.split()[1])
            for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
            if line.startswith("AnonHugePages:")
        )
        assert held_kb * 1024 >= num_huge * (2 << 20)
