"""Runs a trace again, in a fresh worker that holds none of the candidate's code but its kernels, on other inputs.

What counts as the answer of a candidate's kernels is what comes out here: the kernels are those of the source, as
`kernel_source.py` took them out, what they touch is bounded by `replay_memory.py`, and between launches run only the
operators that the trace names and the judge has let pass (`evidence.py`). Invariant: no code of the candidate runs in
this process but checked kernels, so what it reports is its own.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.messages import ArenaSpec, InterpreterLacks, Replay, Replayed, TensorSpec
from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Trace, places
from weir.kernel_eval.worker.replay_memory import BoundedMemory, Region
from weir.kernel_eval.worker.replay_values import import_kernels, is_unfilled, operator_of, tensor_at, value_of

_FILL = 0xFF
_M_PERTURB = -6
_MARKS = (0x00, 0x41)  # two contents for what kernels stored; whatever follows from it differs between them


class Replayer:
    """One trace, one set of inputs."""

    def __init__(self, replay: Replay, memory: tensor_arena.Memory, folder: str) -> None:
        self._trace: Trace = replay.trace
        self._spec: ArenaSpec = replay.arena
        self._memory = memory
        self._kernels = import_kernels(replay.kernels, folder)
        self._bounded = BoundedMemory()

    def run(self) -> Replayed:
        """Write the outputs to the arena, and say which part of them kernels stored."""
        self._bounded.install()
        _overwrite_what_is_freed()
        stored: dict[int, list[Any]] = {}
        storages = fresh_storages(self._trace, self._memory, self._spec)
        for position, step in enumerate(self._trace.steps):
            if isinstance(step, Launch):
                stored[position] = self._launch(step, storages)
            elif isinstance(step, Operator):
                _operate(step, storages)
            else:
                raise ValueError(f"{step.kernel} is machine code, which runs on a GPU only")
        for output, place in zip(self._trace.outputs, self._spec.outputs, strict=True):
            assert isinstance(output, Place)
            if 0 not in place.shape:
                tensor_arena.flat_view(self._memory, place).view(place.shape).copy_(tensor_at(output, storages))
        return Replayed(self._coverage(stored))

    def _launch(self, launch: Launch, storages: list[torch.Tensor]) -> list[Any]:
        touched = sorted({place.storage for place in places(list(launch.arguments.values()))})
        regions = {position: Region(storages[position]) for position in touched}
        self._bounded.allow(list(regions.values()))
        arguments = {name: value_of(value, storages, self._kernels) for name, value in launch.arguments.items()}
        try:
            getattr(self._kernels, launch.kernel)[launch.grid](**arguments)
        except InterpreterError as error:
            cause = error.__cause__ or error
            if isinstance(cause, NotImplementedError):
                raise InterpreterLacks(str(cause)) from None
            raise cause from None
        return [(position, region.stored) for position, region in regions.items()]

    def _coverage(self, stored: dict[int, list[Any]]) -> tuple[float, ...]:
        """For each output, the share of elements that would be others had the kernels stored something else."""
        first, second = (self._marked(stored, mark) for mark in _MARKS)
        shares = []
        for output in self._trace.outputs:
            assert isinstance(output, Place)
            one, two = (_raw(tensor_at(output, storages)) for storages in (first, second))
            shares.append(float(np.mean((one != two).any(axis=-1))) if one.size else 1.0)
        return tuple(shares)

    def _marked(self, stored: dict[int, list[Any]], mark: int) -> list[torch.Tensor]:
        storages = fresh_storages(self._trace, self._memory, self._spec)
        for position, step in enumerate(self._trace.steps):
            if isinstance(step, Operator):
                _operate(step, storages)
            else:
                for storage, bytes_stored in stored[position]:
                    storages[storage].numpy()[bytes_stored] = mark
        return storages


def _overwrite_what_is_freed() -> None:
    """From now on, in this process: what an operator leaves unfilled must not hold copies of inputs (mallopt(3))."""
    ctypes.CDLL(None).mallopt(_M_PERTURB, _FILL)


def fresh_storages(trace: Trace, memory: tensor_arena.Memory, spec: ArenaSpec) -> list[torch.Tensor]:
    """One tensor of bytes for each storage of a trace; inputs and state with their contents, copied."""
    given = {"input": _specs(spec.arguments.items[0]), "state": _specs(spec.arguments.items[1])}
    storages = []
    for storage in trace.storages:
        content = torch.full((storage.size_bytes,), _FILL, dtype=torch.uint8, device=memory.device)
        if storage.kind in given:
            flat = tensor_arena.flat_view(memory, given[storage.kind][storage.index])
            content = flat.clone().view(torch.uint8) if flat.numel() else content
        storages.append(content)
    return storages


def _specs(value: Any) -> list[TensorSpec]:
    if isinstance(value, TensorSpec):
        return [value]
    return [spec for item in getattr(value, "items", ()) for spec in _specs(item)]


def _operate(step: Operator, storages: list[torch.Tensor]) -> None:
    """One operator: in place where it is of that kind, else its results are put where they lay.

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
        tensor_at(place, storages).copy_(made)


def _raw(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor; shape (elements, itemsize)."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return np.empty((0, 1))
    return flat.view(torch.uint8).reshape(flat.numel(), flat.element_size()).numpy()
