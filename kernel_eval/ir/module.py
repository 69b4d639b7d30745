"""A module of TTIR after reading: functions of blocks of operations over numbered values. Plain data."""

from __future__ import annotations

import dataclasses
from typing import Any

from weir.kernel_eval.ir.types import Type

EARLY, PIPELINED = "early", "pipelined"  # of a load that its loop takes before stores, and of such a loop
PROMISE = "promise"  # an operation that the reader adds: what the text says that a value is, in hints to the compiler


class Bits(int):
    """The bits of a floating-point number, in a constant."""


@dataclasses.dataclass(slots=True)
class Operation:
    """One operation. Values are numbers, unique in their function.

    `dead` are the values that no later operation of the same block uses, found by `text/liveness.py`.
    """

    name: str
    line: int
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    successors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dead: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Block:
    """A label, the values it is entered with, and its operations; the last one leaves it."""

    label: str
    arguments: tuple[int, ...]
    operations: list[Operation]


@dataclasses.dataclass(slots=True)
class Region:
    """Blocks; the first is the entry. `captured` are the values of the surroundings that it uses."""

    blocks: list[Block]
    captured: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Function:
    """A function. `types` has the type of every value, by number."""

    name: str
    public: bool
    names: tuple[str, ...]
    parameters: tuple[int, ...]
    results: tuple[Type, ...]
    types: list[Type]
    body: Region
    attributes: tuple[dict[str, Any], ...] = ()


@dataclasses.dataclass(slots=True)
class Module:
    """All functions by name; `entry` is the kernel."""

    functions: dict[str, Function]
    entry: Function
    operations: int
