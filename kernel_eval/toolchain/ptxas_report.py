"""What NVIDIA's assembler says of a kernel. Pure: its printed text in, figures out."""

from __future__ import annotations

import re

import msgspec

_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


class Usage(msgspec.Struct, frozen=True):
    """What a kernel needs of a multiprocessor, per thread where it is not shared memory."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int


def parse_usage(printed: str) -> Usage | None:
    """From what `ptxas -v` (or nvcc, which passes it on) prints; None where it printed no such thing."""
    registers, spills, shared = _REGISTERS.search(printed), _SPILLS.search(printed), _SHARED.search(printed)
    if registers is None:
        return None
    stack, stores, loads = (int(number) for number in spills.groups()) if spills else (0, 0, 0)
    return Usage(int(registers[1]), stack, stores, loads, int(shared[1]) if shared else 0)
