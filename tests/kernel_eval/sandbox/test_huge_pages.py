"""A zygote's memory in huge pages: where one fits, and that the contents stay the same."""

from __future__ import annotations

import mmap
from pathlib import Path

from weir.kernel_eval.sandbox import huge_pages

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


def test_memory_holds_what_it_held_when_its_pages_have_become_huge() -> None:
    with mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        pattern = bytes(range(256)) * (len(memory) // 256)
        memory[:] = pattern
        num_huge = huge_pages.gather()
        assert memory[:] == pattern
        held_kb = sum(
            int(line.split()[1])
            for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
            if line.startswith("AnonHugePages:")
        )
        assert held_kb * 1024 >= num_huge * (2 << 20)
