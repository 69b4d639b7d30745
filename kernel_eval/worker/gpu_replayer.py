"""Replays and times a trace on a GPU, in a fresh worker that holds none of the candidate's code but its kernels.

The launches are real: of Triton's kernels, and of machine code that was built from the candidate's text.
Memory accesses are bounded by the device, not by this process, which holds only the data of the trace: no expected
value, and no other evaluation. The time is that of the launches and of the operators between them, on inputs that were
never seen; the candidate's own Python and C++ are not part of it.

Not contained: a kernel that writes out of bounds could reach the driver's memory in this process. The judge compares
the answer, and compares the time with its own clock (`roofline.py`).
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.messages import ArenaSpec, Replay, Replayed, Timed
from weir.kernel_eval.ipc.trace import Argument, Descriptor, Launch, Many, Named, Operator, Place, Trace
from weir.kernel_eval.replay.steps import fresh_storages, run_operator, write_outputs
from weir.kernel_eval.replay.values import tensor_at, value_of
from weir.kernel_eval.timing.cuda_clock import GpuClock
from weir.kernel_eval.worker.gpu_modules import GpuModules
from weir.kernel_eval.worker.named_kernel import kernel_of

_LANGUAGE = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}


class GpuReplayer:
    """One trace, any number of inputs."""

    def __init__(self, replay: Replay, folder: str) -> None:
        self._trace: Trace = replay.trace
        self._kernels = import_kernels(replay.kernels, folder)
        self._modules = GpuModules(replay.codes)
        self._clock: GpuClock | None = None

    def run(self, memory: tensor_arena.Memory, spec: ArenaSpec) -> Replayed:
        """Write the outputs to the arena, and report the share of each that kernels stored."""
        storages = fresh_storages(self._trace, memory, spec)
        self._execute(storages)
        write_outputs(self._trace, storages, memory, spec)
        without = fresh_storages(self._trace, memory, spec)
        self._execute(without, launches=False)
        return Replayed(tuple(self._coverage(output, storages, without) for output in self._trace.outputs))

    def time(self, memory: tensor_arena.Memory, spec: ArenaSpec, repeats: int) -> Timed:
        """One timed run, whose outputs are written; with `repeats`, that many runs in a row, and no time."""
        storages = fresh_storages(self._trace, memory, spec)
        if repeats:
            for _ in range(repeats):
                self._execute(storages)
            return Timed(0.0)
        if self._clock is None:
            self._clock = GpuClock(0)
        took_us = self._clock.time_us(lambda: self._execute(storages))
        write_outputs(self._trace, storages, memory, spec)
        return Timed(took_us)

    def _execute(self, storages: list[torch.Tensor], *, launches: bool = True) -> None:
        for step in self._trace.steps:
            if isinstance(step, Operator):
                _operate(step, storages)
            elif not launches:
                continue
            elif isinstance(step, Launch):
                self._launch(step, storages)
            else:
                self._modules.launch(step, [storage.data_ptr() for storage in storages])

    def _launch(self, launch: Launch, storages: list[torch.Tensor]) -> None:
        given = launch.arguments | launch.options
        arguments = {name: launch_value(value, storages, self._kernels) for name, value in given.items()}
        kernel_of(self._kernels, launch.kernel)[launch.grid](**arguments)

    def _coverage(self, output: Any, storages: list[torch.Tensor], without: list[torch.Tensor]) -> float:
        """The share of an output's elements that differ if no kernel is launched."""
        one, two = (tensor_at(output, each).contiguous().reshape(-1) for each in (storages, without))
        if not one.numel():
            return 1.0
        differs = one.view(torch.uint8) != two.view(torch.uint8)
        return float(differs.view(one.numel(), -1).any(dim=1).float().mean())


def import_kernels(source: str, folder: str) -> types.ModuleType:
    """Import the module of extracted kernels from a file, from which Triton reads a kernel's source."""
    path = f"{folder}/kernels.py"
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    module = types.ModuleType("kernels")
    module.__file__ = path
    sys.modules["kernels"] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def launch_value(value: Argument, storages: list[torch.Tensor], kernels: types.ModuleType) -> Any:
    """The value of an argument of a launch. Raises ValueError for types that cannot be replayed."""
    if isinstance(value, Many):
        items = [launch_value(item, storages, kernels) for item in value.items]
        return items if value.kind == "list" else tuple(items)
    if isinstance(value, Named) and value.kind == "triton":
        return _LANGUAGE[value.name]
    if isinstance(value, Named) and value.kind == "kernel":
        return kernel_of(kernels, value.name)
    if isinstance(value, Descriptor):
        base = tensor_at(value.base, storages)
        return TensorDescriptor(base, list(value.shape), list(value.stride), list(value.block_shape), value.padding)
    return value_of(value, storages)


def _operate(step: Operator, storages: list[torch.Tensor]) -> None:
    """Run an operator. A result with the layout of the candidate's becomes the storage; any other is copied into it."""
    for place, made in run_operator(step, storages):
        if has_layout_of(made, place, storages[place.storage].numel()):
            storage = torch.tensor([], dtype=torch.uint8, device=made.device)
            storages[place.storage] = storage.set_(made.untyped_storage())
        else:
            tensor_at(place, storages).copy_(made)


def has_layout_of(made: torch.Tensor, place: Place, num_bytes: int) -> bool:
    """Whether a tensor has the layout that the trace names, in a storage of its own of at least that size."""
    layout = tuple(made.shape), made.stride(), made.storage_offset()
    whole = made.untyped_storage().nbytes() >= num_bytes
    return whole and layout == (place.shape, place.stride, place.offset)
