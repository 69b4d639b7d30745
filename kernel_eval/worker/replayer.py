"""Replays a trace on other inputs, in a fresh worker that holds none of the candidate's code but its kernels.

The result of a replay counts as the answer of the candidate's kernels. The kernels were extracted from its source, the
memory that they touch is bounded (`replay_memory.py`), and between launches run only the operators that the trace names
and the judge has admitted. Invariant: no code of the candidate runs in this process but checked kernels, so that its
reports can be trusted.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.messages import ArenaSpec, InterpreterLacks, Replay, Replayed
from weir.kernel_eval.ipc.trace import Launch, Operator, Place, Trace, places
from weir.kernel_eval.worker.replay_memory import BoundedMemory, Region
from weir.kernel_eval.worker.replay_steps import FILL, fresh_storages, run_operator, write_outputs
from weir.kernel_eval.worker.replay_values import import_kernels, tensor_at, value_of

_M_PERTURB = -6
_MARKS = (0x00, 0x41)  # two contents for the bytes that kernels stored; everything computed from them differs


class Replayer:
    """One trace, one set of inputs."""

    def __init__(self, replay: Replay, memory: tensor_arena.Memory, folder: str) -> None:
        self._trace: Trace = replay.trace
        self._spec: ArenaSpec = replay.arena
        self._memory = memory
        self._kernels = import_kernels(replay.kernels, folder)
        self._bounded = BoundedMemory()

    def run(self) -> Replayed:
        """Write the outputs to the arena, and report the share of each that kernels stored.

        Raises `InterpreterLacks` and whatever a kernel raises; ValueError for steps that a replay refuses.
        """
        self._bounded.install()
        _fill_freed_memory()
        stored: dict[int, list[tuple[int, Any]]] = {}
        storages = fresh_storages(self._trace, self._memory, self._spec)
        for position, step in enumerate(self._trace.steps):
            if isinstance(step, Launch):
                stored[position] = self._launch(step, storages)
            elif isinstance(step, Operator):
                _operate(step, storages)
            else:
                raise ValueError(f"{step.kernel} is machine code, which runs on a GPU only")
        write_outputs(self._trace, storages, self._memory, self._spec)
        return Replayed(self._coverage(stored))

    def _launch(self, launch: Launch, storages: list[torch.Tensor]) -> list[tuple[int, Any]]:
        """Run one launch. Returns the storages that it may touch, each with a mask of the bytes that it stored."""
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

    def _coverage(self, stored: dict[int, list[tuple[int, Any]]]) -> tuple[float, ...]:
        """For each output, the share of elements that change if the kernels store something else."""
        first, second = (self._marked(stored, mark) for mark in _MARKS)
        shares = []
        for output in self._trace.outputs:
            assert isinstance(output, Place)
            one, two = (_bytes_by_element(tensor_at(output, storages)) for storages in (first, second))
            shares.append(float(np.mean((one != two).any(axis=-1))) if one.size else 1.0)
        return tuple(shares)

    def _marked(self, stored: dict[int, list[tuple[int, Any]]], mark: int) -> list[torch.Tensor]:
        """The storages after a run in which each launch stores `mark` instead of its results."""
        storages = fresh_storages(self._trace, self._memory, self._spec)
        for position, step in enumerate(self._trace.steps):
            if isinstance(step, Operator):
                _operate(step, storages)
            else:
                for storage, bytes_stored in stored[position]:
                    storages[storage].numpy()[bytes_stored] = mark
        return storages


def _operate(step: Operator, storages: list[torch.Tensor]) -> None:
    for place, made in run_operator(step, storages):
        tensor_at(place, storages).copy_(made)


def _fill_freed_memory() -> None:
    """Have malloc overwrite freed memory, so that uninitialised results hold no copies of inputs (mallopt(3))."""
    ctypes.CDLL(None).mallopt(_M_PERTURB, FILL)


def _bytes_by_element(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor; shape (elements, itemsize)."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return np.empty((0, 1))
    return flat.view(torch.uint8).reshape(flat.numel(), flat.element_size()).numpy()
