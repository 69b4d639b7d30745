"""The player: runs records on inputs that only it and the judge see, in a process that never sees the candidate.

A record is data: operators of torch by name, and launches with their IR (`ir_launches.py`). Invariant: no byte of the
candidate is imported, parsed or evaluated as Python here, and Triton is not loaded, so that what this process reports
can be trusted. Operators are torch's own, and those that the judge has admitted (`provenance.py`); every access of a
kernel is checked against the storages of its launch. Contained like every worker, because the interpreter of IR and
torch may have bugs.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import ChannelClosed, receive, send
from weir.kernel_eval.ipc.messages import ArenaSpec, Done, Failed, FromWorker, LoadRecord, Play, Played, ToPlayer
from weir.kernel_eval.ipc.trace import Launch, Opaque, Operator, Place, Trace
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.replay.ir_launches import IrLaunches, LaunchFailed
from weir.kernel_eval.replay.kept import Contents, Kept
from weir.kernel_eval.replay.steps import (
    Left,
    changed,
    check_narrowing,
    fresh_storages,
    run_operator,
    write_outputs,
)
from weir.kernel_eval.replay.values import tensor_at

_M_PERTURB = -6
_MARKS = (0x00, 0x41)  # two contents for the bytes that kernels stored; everything computed from them differs
_TEXT_CHARS = 2000

Stored = dict[int, Sequence[tuple[int, Any]]]  # by position of the launch: storages, each with a mask of bytes


class _Loaded(NamedTuple):
    trace: Trace
    launches: IrLaunches
    kept: Contents  # as the last play left them
    found: Contents  # as the last play, which a play without marks repeats, found them


class Player:
    """The records of one candidate, each played any number of times."""

    def __init__(self, channel: socket.socket, limits: Limits) -> None:
        self._channel = channel
        self._limits = limits
        self._records: list[_Loaded] = []
        self._num_played = 0
        self._left: Left = {}  # by the last of several calls in succession

    def serve(self) -> None:
        """Handle requests until the judge closes the channel. Raises AssertionError for those to a GPU's player."""
        _fill_freed_memory()
        while True:
            try:
                message: ToPlayer
                message, fds = receive(self._channel, ToPlayer)  # type: ignore[arg-type]
            except ChannelClosed:
                return
            if isinstance(message, LoadRecord):
                self._attempt(functools.partial(self._load, message))
            elif isinstance(message, Play):
                self._attempt(functools.partial(self._play, message, fds[0]))
            else:
                raise AssertionError(f"{type(message).__name__} is for players on a GPU")

    def _attempt(self, step: Callable[[], FromWorker]) -> None:
        try:
            with torch.no_grad():
                reply = step()
        except LaunchFailed as error:
            reply = Failed("replay", type(error).__name__, str(error), "", refused_by=error.kind, kernel=error.kernel)
        except Exception as error:  # a step that no honest record has: an operator that torch refuses, a place outside
            text = "".join(traceback.format_exception(error, limit=-8))[-_TEXT_CHARS:]
            out_of_memory = isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)
            reply = Failed(
                "replay", type(error).__name__, str(error)[:_TEXT_CHARS], text, None, out_of_memory, None, "steps"
            )
        sys.stdout.flush()
        sys.stderr.flush()
        send(self._channel, reply)

    def _load(self, message: LoadRecord) -> Done:
        launches = IrLaunches(message.irs, self._limits.memory_bytes, self._limits.call_timeout_s)
        self._records.append(_Loaded(message.trace, launches, {}, {}))
        return Done()

    def _play(self, message: Play, fd: int) -> Played:
        memory = tensor_arena.attach(message.arena, fd)
        trace, launches, kept, found = self._records[message.record]
        if message.marks:
            found.clear()
            found.update(kept)
        earlier = kept if message.marks else dict(found)
        number, self._num_played = self._num_played, self._num_played + 1
        left = self._left if message.state == "continued" else {}
        if message.state != "given":
            self._left = left

        def run(order: int) -> Played:
            launches.begin(exact_dots=message.exact_dots, marks=message.marks, order=order)
            return play(
                trace, launches, memory, message.arena, marks=message.marks, number=number, left=left, earlier=earlier
            )

        try:
            return run(message.order)
        except LaunchFailed as error:
            if not message.order or not error.waits:
                raise
        return run(0)  # programs that wait for those before them, which devices start first


def play(
    trace: Trace,
    launches: IrLaunches,
    memory: tensor_arena.Memory,
    spec: ArenaSpec,
    *,
    marks: bool,
    number: int = 0,
    left: Left | None = None,
    earlier: Contents | None = None,
) -> Played:
    """Run a trace on the inputs and the state of an arena, and write its outputs there.

    `number`: that of the call, by which memory that no step has written is filled. `left`: the state that earlier calls
    left, if it differs from the arena's; takes what this call leaves. `earlier`: as in `Kept.left`. Raises
    `LaunchFailed`, and ValueError for steps that are refused.
    """
    left = {} if left is None else left
    stored: Stored = {}

    def run(kept: Kept) -> list[torch.Tensor]:
        storages = fresh_storages(trace, memory, spec, number, left)
        for position, step in enumerate(trace.steps):
            kept.begin_step(position, storages)
            if isinstance(step, Launch):
                stored[position] = launches.run(step, storages)
            elif isinstance(step, Operator):
                check_narrowing(step, storages)
                _operate(step, storages)
            else:
                raise ValueError(f"{step.kernel} is machine code, which runs on a GPU only")
        return storages

    kept = Kept(trace)
    storages = run(kept)
    if dirty := kept.left(storages, {} if earlier is None else earlier):
        storages = run(Kept(trace, dirty))
    write_outputs(trace, storages, memory, spec)
    inputs, state = changed(trace, storages, memory, spec, left)
    del storages  # the marks need as much
    coverage = _coverage(trace, stored, memory, spec) if marks else ()
    return Played(coverage, inputs, launches.num_rounded_dots, changed_state=state)


def _operate(step: Operator, storages: list[torch.Tensor]) -> None:
    for place, made in run_operator(step, storages):
        tensor_at(place, storages).copy_(made)


def _coverage(trace: Trace, stored: Stored, memory: tensor_arena.Memory, spec: ArenaSpec) -> tuple[float, ...]:
    """For each output, the share of elements that change if the kernels store something else."""
    if not any(isinstance(step, Operator) for step in trace.steps[min(stored, default=0) :]):
        return tuple(_share(masks) for masks in _masks_of_outputs(trace, stored))
    first, second = (_marked(trace, stored, memory, spec, mark) for mark in _MARKS)
    return tuple(
        _share(
            _bytes_by_element(tensor_at(_place(output), first)) != _bytes_by_element(tensor_at(_place(output), second))
        )
        for output in trace.outputs
    )


def _masks_of_outputs(trace: Trace, stored: Stored) -> Iterator[Any]:
    """For each output, which of its bytes kernels stored; after the first launch torch does nothing more."""
    for output in trace.outputs:
        place = _place(output)
        mask = np.zeros(trace.storages[place.storage].size_bytes, dtype=np.uint8)
        for storage, bytes_stored in itertools.chain(*stored.values()):
            if storage == place.storage:
                mask[bytes_stored] = 1
        yield _bytes_by_element(tensor_at(place, {place.storage: torch.from_numpy(mask)}))


def _share(differs: Any) -> float:
    """Of the elements of which any byte differs; shape (elements, itemsize)."""
    return float(np.mean(differs.any(axis=-1))) if differs.size else 1.0


def _place(output: Place | Opaque) -> Place:
    assert isinstance(output, Place)
    return output


def _marked(
    trace: Trace, stored: Stored, memory: tensor_arena.Memory, spec: ArenaSpec, mark: int
) -> list[torch.Tensor]:
    """The storages after a run in which each launch stores `mark` instead of its results."""
    storages = fresh_storages(trace, memory, spec)
    for position, step in enumerate(trace.steps):
        if isinstance(step, Operator):
            _operate(step, storages)
        else:
            for storage, bytes_stored in stored[position]:
                storages[storage].numpy()[bytes_stored] = mark
    return storages


def _fill_freed_memory() -> None:
    """Have malloc overwrite freed memory, so that uninitialised results hold no copies of inputs (mallopt(3))."""
    ctypes.CDLL(None).mallopt(_M_PERTURB, tensor_arena.FILL)


def _bytes_by_element(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor; shape (elements, itemsize)."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return np.empty((0, 1))
    return flat.view(torch.uint8).reshape(flat.numel(), flat.element_size()).numpy()


def run(limits: Limits, channel: socket.socket, folder: str) -> None:
    """Serve one judge, in a contained and freshly forked process."""
    os.chdir(folder)
    gc.enable()
    Player(channel, limits).serve()
