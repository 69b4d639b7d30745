"""Parses the resource report of NVIDIA's assembler. Pure."""

from __future__ import annotations

import re

import msgspec

_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


class Usage(msgspec.Struct, frozen=True):
    """The resources of a kernel: shared memory per block, everything else per thread."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int


def parse_usage(printed: str) -> Usage | None:
    """The usage in the output of `ptxas -v`, or of nvcc; None if there is none."""
    registers, spills, shared = _REGISTERS.search(printed), _SPILLS.search(printed), _SHARED.search(printed)
    if registers is None:
        return None
    stack, stores, loads = (int(number) for number in spills.groups()) if spills else (0, 0, 0)
    return Usage(int(registers[1]), stack, stores, loads, int(shared[1]) if shared else 0)
