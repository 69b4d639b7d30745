"""Runs the launches of a record: their IR, on the storages of the record, by the interpreter of Triton's IR.

The IR is text from a candidate's process, and is read strictly. Its arguments name storages and offsets; an address
outside the storages of its launch is a fault of the kernel. A kernel that reads or writes what other programs, or other
lanes of a program, write has no defined result on a device, and is refused. Where only atomics meet, an order may
decide nothing that matters (a counter from which programs take their tiles): such launches are played in several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from weir.kernel_eval.ipc.messages import KernelIr, Refusal
from weir.kernel_eval.ipc.trace import Argument as Given
from weir.kernel_eval.ipc.trace import Descriptor, Launch, Place, Plain
from weir.kernel_eval.ir.errors import IrError, KernelFault, LimitExceeded, Unsupported
from weir.kernel_eval.ir.grid.memory import Storage
from weir.kernel_eval.ir.grid.run import Argument, DescriptorArgument, PointerArgument, run
from weir.kernel_eval.ir.limits import RunLimits
from weir.kernel_eval.ir.module import Module
from weir.kernel_eval.ir.text.parser import parse
from weir.kernel_eval.ir.text.pipelines import mark_pipelined
from weir.kernel_eval.replay.values import offset_bytes

_FAULTS: dict[str, Refusal] = {
    "out_of_bounds": "out_of_bounds",
    "read_only": "out_of_bounds",
    "misaligned": "misaligned",
    "assertion": "assertion",
}
_MEMORY_SHARE = 0.25  # of a player's memory, for the values of one launch


class LaunchFailed(Exception):
    """A kernel could not be read, or did not run. `waits`: a program waited for another one, which was yet to come."""

    def __init__(self, kind: Refusal, kernel: str, message: str, *, waits: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.kernel = kernel
        self.waits = waits


_STAGES = 3  # where a launch names none, as Triton has it for NVIDIA's devices


class IrLaunches:
    """The kernels of one record, read by the constructor. Raises `LaunchFailed`."""

    def __init__(self, irs: Sequence[KernelIr], memory_bytes: int, cpu_s: float) -> None:
        self._modules: list[Module] = []
        self._memory_bytes = int(memory_bytes * _MEMORY_SHARE)
        self._cpu_s = cpu_s
        self._limits = RunLimits()
        self._marks = False
        self.num_rounded_dots = 0  # launches since `begin` whose products of float32 a device rounds
        for ir in irs:
            try:
                module = parse(ir.text)
                stages = ir.options.get("num_stages")
                mark_pipelined(module, stages if isinstance(stages, int) else _STAGES)
                self._modules.append(module)
            except IrError as error:
                _refuse(error, ir.kernel)

    def begin(self, *, exact_dots: bool, marks: bool, order: int = 0) -> None:
        """Start a run of the record. `marks`: note which bytes the launches store · `order`: as in `RunLimits`."""
        self._limits = RunLimits(
            memory_bytes=self._memory_bytes,
            cpu_s=self._cpu_s,
            exact_dots=exact_dots,
            round_tf32=not exact_dots,
            order=order,
        )
        self._marks = marks
        self.num_rounded_dots = 0

    def run(self, launch: Launch, storages: list[torch.Tensor]) -> list[tuple[int, Any]]:
        """Run one launch. Returns the storages that it wrote, each with a mask of its bytes; with `marks` only.

        Raises `LaunchFailed`, and ValueError for arguments that no kernel takes.
        """
        if launch.ir is None or not 0 <= launch.ir < len(self._modules):
            raise LaunchFailed("malformed", launch.name, "the record has no IR of this launch")
        touched = sorted(launch.storages)
        numbers = {storage: number for number, storage in enumerate(touched)}
        x, y, z = (*launch.grid, 1, 1, 1)[:3]
        try:
            report = run(
                self._modules[launch.ir],
                (x, y, z),
                [_argument(given, numbers) for given in launch.ir_arguments],
                [Storage(memory=storages[storage]) for storage in touched],
                self._limits,
            )
        except IrError as error:
            _refuse(error, launch.name)
        unordered = sorted(report.races)
        if unordered:
            message = (
                f"the result depends on the order in which programs run ({', '.join(unordered)}), which a device does "
                "not define: let each program write what no other one reads or writes, use atomics, or a lock that is "
                "released behind tl.debug_barrier()"
            )
            raise LaunchFailed("order", launch.name, message)
        self.num_rounded_dots += report.rounds_dots
        if not self._marks:
            return []
        return [
            (touched[n], written.bytes(storages[touched[n]].numel()).numpy()) for n, written in report.written.items()
        ]


def _argument(given: Given, numbers: dict[int, int]) -> Argument:
    if isinstance(given, Place):
        return PointerArgument(storage=numbers[given.storage], offset=offset_bytes(given))
    if isinstance(given, Descriptor):
        pointer = PointerArgument(storage=numbers[given.base.storage], offset=offset_bytes(given.base))
        return DescriptorArgument(pointer=pointer, shape=given.shape, strides=given.stride, padding=given.padding)
    if isinstance(given, Plain) and isinstance(given.value, int | float | bool):
        return given.value
    raise ValueError(f"an argument of kind {type(given).__name__} cannot be given to a kernel")


def _refuse(error: IrError, kernel: str) -> NoReturn:
    if isinstance(error, KernelFault):
        kind: Refusal = _FAULTS.get(error.kind, "malformed")
    elif isinstance(error, Unsupported):
        kind = "unsupported"
    else:
        kind = "too_much" if isinstance(error, LimitExceeded) else "malformed"
    waits = isinstance(error, Unsupported) and error.name == "deadlock"
    raise LaunchFailed(kind, kernel, str(error), waits=waits) from None
