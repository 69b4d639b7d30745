"""The layout of kernels' parameters, read from their PTX. Pure.

The runtime passes the address of each parameter of a launch, without its size. PTX declares the parameters in order,
with their types, and a launch lays them out as C does: each at the next multiple of its alignment (PTX ISA, ".param"
space).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+?)(\d+)\b[^\[,]*(?:\[(\d+)\])?")
_TENSOR_MAP_BYTES = 128


class Parameter(NamedTuple):
    """One parameter, in bytes."""

    offset: int
    size: int
    alignment: int


class Layout(msgspec.Struct, frozen=True):
    """A kernel, by its name in machine code, and its parameters."""

    kernel: str
    parameters: tuple[Parameter, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all parameters together."""
        return self.parameters[-1].offset + self.parameters[-1].size if self.parameters else 0

    @property
    def takes_tensor_map(self) -> bool:
        """Whether a parameter is a tensor map of the driver (CUtensorMap), which contains a hidden address."""
        return any((p.size, p.alignment) == (_TENSOR_MAP_BYTES, 64) for p in self.parameters)


def layouts_in(ptx: str) -> list[Layout]:
    """The layouts of all kernels in a PTX text."""
    return [Layout(entry[1], _parameters(entry[2])) for entry in _ENTRY.finditer(ptx)]


def _parameters(declared: str) -> tuple[Parameter, ...]:
    parameters: list[Parameter] = []
    end = 0
    for align, _, bits, count in _PARAMETER.findall(declared):
        element = int(bits) // 8
        size = element * int(count or 1)
        alignment = int(align or element)
        offset = -(-end // alignment) * alignment
        parameters.append(Parameter(offset, size, alignment))
        end = offset + size
    return tuple(parameters)
