"""Runs a trace again on a GPU, in a fresh worker that holds none of the candidate's code but its kernels; and times it.

As `replayer.py`, with real launches: of Triton's kernels, and of machine code that was built from the candidate's text.
What a kernel touches is bounded by the device, not by this process, in which there is nothing but what the trace is
about: no expected value, and no other evaluation. Time is that of the launches and of the operators between them, on
inputs that were never seen; the candidate's own Python and C++ are no part of it.

Not contained: a kernel that writes to memory it was not given could reach what the driver keeps in this process. The
answer is compared by the judge, and the time is held against the judge's own clock (`speed.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.messages import ArenaSpec, Replay, Replayed, Timed
from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Trace
from weir.kernel_eval.timing.cuda_clock import GpuClock
from weir.kernel_eval.worker.gpu_modules import GpuModules
from weir.kernel_eval.worker.replay_values import import_kernels, is_unfilled, operator_of, tensor_at, value_of
from weir.kernel_eval.worker.replayer import fresh_storages


class GpuReplayer:
    """One trace; as many inputs as are asked for."""

    def __init__(self, replay: Replay, folder: str) -> None:
        self._trace: Trace = replay.trace
        self._kernels = import_kernels(replay.kernels, folder)
        self._modules = GpuModules(replay.codes)
        self._clock: GpuClock | None = None

    def run(self, memory: tensor_arena.Memory, spec: ArenaSpec) -> Replayed:
        """Write the outputs to the arena, and say which part of them kernels stored."""
        storages = fresh_storages(self._trace, memory, spec)
        self._execute(storages)
        self._write(storages, memory, spec)
        without = fresh_storages(self._trace, memory, spec)
        self._execute(without, launches=False)
        return Replayed(tuple(self._share(output, storages, without) for output in self._trace.outputs))

    def time(self, memory: tensor_arena.Memory, spec: ArenaSpec, repeats: int) -> Timed:
        """One timed run, whose outputs are written; with `repeats`, so many runs one after the other and no time."""
        storages = fresh_storages(self._trace, memory, spec)
        if repeats:
            for _ in range(repeats):
                self._execute(storages)
            return Timed(0.0)
        if self._clock is None:
            self._clock = GpuClock(0)
        took_us = self._clock.time_us(lambda: self._execute(storages))
        self._write(storages, memory, spec)
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
        arguments = {name: value_of(value, storages, self._kernels) for name, value in given.items()}
        getattr(self._kernels, launch.kernel)[launch.grid](**arguments)

    def _write(self, storages: list[torch.Tensor], memory: tensor_arena.Memory, spec: ArenaSpec) -> None:
        for output, place in zip(self._trace.outputs, spec.outputs, strict=True):
            assert isinstance(output, Place)
            if 0 not in place.shape:
                tensor_arena.flat_view(memory, place).view(place.shape).copy_(tensor_at(output, storages))

    def _share(self, output: Any, storages: list[torch.Tensor], without: list[torch.Tensor]) -> float:
        """The share of an output's elements that are others where no kernel was launched."""
        one, two = (tensor_at(output, each).contiguous().reshape(-1) for each in (storages, without))
        if not one.numel():
            return 1.0
        differs = one.view(torch.uint8) != two.view(torch.uint8)
        return float(differs.view(one.numel(), -1).any(dim=1).float().mean())


def _operate(step: Operator, storages: list[torch.Tensor]) -> None:
    """One operator. What it makes is taken as it is where it lies as it did in the candidate, and else copied.

    Memory that it leaves unfilled stays as `fresh_storages` filled it.
    """
    if is_unfilled(step):
        return
    function = operator_of(step)
    arguments = [value_of(value, storages) for value in step.arguments]
    keywords = {name: value_of(value, storages) for name, value in step.keywords.items()}
    result = function(*arguments, **keywords)
    if any(a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments):
        return
    results = [result] if isinstance(result, torch.Tensor) else [r for r in result if isinstance(r, torch.Tensor)]
    for place, made in zip(step.results, results, strict=True):
        if lies_alike(made, place, storages[place.storage].numel()):
            storages[place.storage] = torch.tensor([], dtype=torch.uint8, device=made.device).set_(
                made.untyped_storage()
            )
        else:
            tensor_at(place, storages).copy_(made)


def lies_alike(made: torch.Tensor, place: Place, num_bytes: int) -> bool:
    """Whether a tensor has the layout that the trace names, in a storage of its own of that size."""
    layout = tuple(made.shape), made.stride(), made.storage_offset()
    whole = made.untyped_storage().nbytes() >= num_bytes
    return whole and layout == (place.shape, place.stride, place.offset)
