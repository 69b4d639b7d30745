"""Runs a module over a grid of programs: the way from arguments to a report.

Programs run in chunks that fit the limit on memory; all programs of a chunk run each operation together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch

from weir.kernel_eval.ir.errors import IrError, KernelFault, LimitExceeded, Malformed
from weir.kernel_eval.ir.footprint import footprint
from weir.kernel_eval.ir.grid import (
    accesses,
    atomics,
    casts,
    control,
    dots,
    floats,
    integers,
    libdevice,
    promises,
    shapes,
)
from weir.kernel_eval.ir.grid.clocks import MOST_PROGRAMS, Clocks
from weir.kernel_eval.ir.grid.frame import Frame, Handler, Machine
from weir.kernel_eval.ir.grid.memory import Memory, Storage, address_of
from weir.kernel_eval.ir.grid.pointers import Uses, uses_of
from weir.kernel_eval.ir.grid.reductions import Combining
from weir.kernel_eval.ir.grid.report import RunReport
from weir.kernel_eval.ir.grid.tracking import Tracker
from weir.kernel_eval.ir.grid.values import Affine, BlockSource, Value, constant
from weir.kernel_eval.ir.limits import RunLimits
from weir.kernel_eval.ir.module import Module
from weir.kernel_eval.ir.types import Descriptor, Pointer, Scalar, Type


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PointerArgument:
    """A byte of a storage of the launch."""

    storage: int
    offset: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorArgument:
    """A tensor descriptor that was made on the host. shape, strides: in elements."""

    pointer: PointerArgument
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str = "zero"


Argument = PointerArgument | DescriptorArgument | int | float | bool


def _handlers() -> dict[str, Handler]:
    handlers = {
        **integers.HANDLERS,
        **floats.HANDLERS,
        **casts.HANDLERS,
        **shapes.HANDLERS,
        **accesses.HANDLERS,
        **atomics.HANDLERS,
        **dots.HANDLERS,
        **libdevice.HANDLERS,
        **control.HANDLERS,
        **promises.HANDLERS,
    }
    structured, combining = control.Control(handlers), Combining(handlers)
    handlers |= {
        "scf.if": structured.if_,
        "scf.for": structured.for_,
        "scf.while": structured.while_,
        "tt.call": structured.call,
        "tt.reduce": combining.reduce,
        "tt.scan": combining.scan,
        "tt.map_elementwise": combining.map,
    }
    return handlers


_HANDLERS = _handlers()


def run(
    module: Module,
    grid: tuple[int, int, int],
    arguments: Sequence[Argument],
    storages: Sequence[Storage],
    limits: RunLimits | None = None,
) -> RunReport:
    """Run the kernel of a module on storages, which it changes in place.

    arguments: one for each parameter of the kernel (`module.entry.names`), in order. Raises KernelFault if the kernel
    does what a device would not allow, Unsupported, LimitExceeded, and Malformed for arguments of other types or IR
    that contradicts itself.
    """
    limits = limits or RunLimits()
    programs = _programs(grid, limits)
    uses = uses_of(module)
    races: set[str] = set()
    values = _values(module, arguments, storages)
    clocks = Clocks(programs) if uses.takes_turns and programs <= MOST_PROGRAMS else None
    trackers = _trackers(uses, arguments, storages, races, clocks)
    memory = Memory(list(storages), trackers, clocks)
    machine = Machine(module, grid, memory, limits)
    chunk = 1 if uses.takes_turns else _chunk(module, limits)
    with torch.inference_mode():
        for first in _starts(programs, chunk, machine):
            lanes = np.arange(first, min(first + chunk, programs), dtype=np.int64)
            machine.programs = memory.programs = lanes
            if clocks is not None:
                clocks.start(first)
            _run_chunk(machine, values)
    counts = machine.counts
    return RunReport(
        written={number: tracker.written() for number, tracker in trackers.items()},
        races=frozenset(races),
        ordered_atomics=frozenset(counts.ordered),
        rounds_dots=counts.rounds_dots,
        reads_addresses=counts.reads_addresses,
        flops=counts.flops,
        bytes_read=counts.bytes_read,
        bytes_written=counts.bytes_written,
        programs=programs,
        steps=machine.steps,
    )


def _starts(programs: int, chunk: int, machine: Machine) -> list[int]:
    """The first programs of chunks, in the order in which they run."""
    starts = list(range(0, programs, chunk))
    order = machine.order(len(starts))
    return starts if order is None else [starts[at] for at in order.tolist()]


def _run_chunk(machine: Machine, values: list[Value]) -> None:
    frame = Frame(machine, machine.module.entry, len(machine.programs), None, 0)
    try:
        control.Control(_HANDLERS).body(frame, list(values))
    except IrError:
        raise
    except MemoryError as error:
        raise LimitExceeded("memory_bytes", "no memory is left for the values of a program") from error
    except (RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, AssertionError, AttributeError) as error:
        # torch refused the shapes or types of an operation, which the text of honest IR rules out
        raise Malformed(f"an operation cannot be computed: {type(error).__name__}") from error


def _programs(grid: tuple[int, int, int], limits: RunLimits) -> int:
    if len(grid) != 3 or any(size < 0 for size in grid):
        raise Malformed("a grid is three numbers of programs")
    programs = math.prod(grid)
    if programs > limits.max_programs:
        raise LimitExceeded("max_programs", f"a grid of {programs} programs, more than {limits.max_programs}")
    return programs


def _chunk(module: Module, limits: RunLimits) -> int:
    """How many programs run together."""
    largest, live = footprint(module)
    if live > limits.memory_bytes:
        raise LimitExceeded("memory_bytes", f"a program needs more than {limits.memory_bytes} bytes for its values")
    return max(1, min(limits.chunk_elements // largest, limits.memory_bytes // max(1, live)))


def _values(module: Module, arguments: Sequence[Argument], storages: Sequence[Storage]) -> list[Value]:
    entry = module.entry
    if len(arguments) != len(entry.parameters):
        raise Malformed(f"the kernel takes {len(entry.parameters)} arguments, not {len(arguments)}")
    for argument, attributes in zip(arguments, entry.attributes, strict=True):
        divisor = attributes.get("tt.divisibility", 1)
        if not isinstance(divisor, int) or divisor < 1:
            raise Malformed("the divisibility of an argument is a positive integer")
        place = argument.offset if isinstance(argument, PointerArgument) else argument
        if isinstance(place, int) and place % divisor:
            raise KernelFault("misaligned", f"an argument is no multiple of {divisor}, as the kernel was compiled for")
    return [
        _value(argument, entry.types[number], len(storages))
        for argument, number in zip(arguments, entry.parameters, strict=True)
    ]


def _value(argument: Argument, kind: Type, num_storages: int) -> Value:
    if isinstance(argument, PointerArgument):
        if not isinstance(kind, Pointer) or not 0 <= argument.storage < num_storages:
            raise Malformed(f"a pointer for a parameter of type {kind}")
        return constant(address_of(argument.storage, argument.offset))
    if isinstance(argument, DescriptorArgument):
        rank = len(argument.shape)
        if not isinstance(kind, Descriptor) or rank != len(kind.block.shape) or rank != len(argument.strides):
            raise Malformed(f"a descriptor for a parameter of type {kind}")
        base = constant(address_of(argument.pointer.storage, argument.pointer.offset))
        sizes, strides = ([constant(number) for number in numbers] for numbers in (argument.shape, argument.strides))
        source = BlockSource(base, sizes, strides, argument.padding)
        accesses.check_described(source, kind.block.element.size, None)  # type: ignore[union-attr]
        return source
    if not isinstance(kind, Scalar):
        raise Malformed(f"a number for a parameter of type {kind}")
    if kind.is_float or kind.bits == 1:
        return casts.tensor_of(float(argument) if kind.is_float else bool(argument), kind)
    number, bits = int(argument), kind.bits
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise Malformed(f"a number that does not fit a parameter of type {kind}")
    return Affine(np.array([number - (1 << bits) if number >= 1 << bits - 1 else number], dtype=np.int64), (), ())


def _trackers(
    uses: Uses,
    arguments: Sequence[Argument],
    storages: Sequence[Storage],
    races: set[str],
    clocks: Clocks | None,
) -> dict[int, Tracker]:
    """Trackers of the storages that the kernel may write."""
    places = {
        at: (argument.pointer if isinstance(argument, DescriptorArgument) else argument).storage
        for at, argument in enumerate(arguments)
        if isinstance(argument, PointerArgument | DescriptorArgument)
    }
    written = {storage for at, storage in places.items() if at in uses.written}
    read = {storage for at, storage in places.items() if at in uses.read}
    return {
        number: Tracker(storages[number].memory.numel(), uses.granule, number in read, races, clocks)
        for number in written
    }
