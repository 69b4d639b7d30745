"""The player on a GPU: runs records on inputs that only it and the judge see, without the candidate.

A record is data: operators of torch by name, and launches of machine code that was made of its IR, or of the
candidate's native code. Invariant: no byte of the candidate is imported, parsed or evaluated as Python here, so that
what is tried is what is proven is what is timed. Accesses of kernels are bounded by the device; guard zones around each
piece of memory show what goes a little too far. The time is that of launches and of operators between them.

Not contained: a kernel that writes out of bounds could reach the driver's memory in this process. The judge compares
the answers, and compares the time with its own clock (`roofline.py`).
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.gpu.cuda_driver import CudaDriverError
from weir.kernel_eval.ipc import tensor_arena, unwritten
from weir.kernel_eval.ipc.framing import ChannelClosed, receive, send
from weir.kernel_eval.ipc.messages import (
    ArenaSpec,
    Done,
    Failed,
    FromWorker,
    LoadRecord,
    Play,
    Played,
    Prepare,
    Timed,
    TimePlay,
    ToPlayer,
)
from weir.kernel_eval.ipc.trace import Launch, NativeLaunch, Operator, Place, Trace
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.replay.device.gpu_modules import GpuModules
from weir.kernel_eval.replay.device.kernels import DeviceKernels
from weir.kernel_eval.replay.device.tuning import Tuning
from weir.kernel_eval.replay.ir_launches import LaunchFailed
from weir.kernel_eval.replay.kept import Contents, Kept
from weir.kernel_eval.replay.steps import (
    Left,
    changed,
    fresh_storages,
    given_to,
    left_or,
    run_operator,
    write_outputs,
)
from weir.kernel_eval.replay.values import tensor_at
from weir.kernel_eval.timing.cuda_clock import GpuClock
from weir.kernel_eval.toolchain import scratch_folder

_GUARD_BYTES, _GUARD = 512, 0xFB  # as far as a device aligns memory; a content that reads as a large number
_TEXT_CHARS = 2000


class _Loaded(NamedTuple):
    trace: Trace
    kernels: DeviceKernels
    modules: GpuModules
    tuning: Tuning
    chosen: dict[int, Launch]  # by position of the step
    kept: Contents  # as the last play left them


class DevicePlayer:
    """The records of one candidate, each played any number of times."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._records: list[_Loaded] = []
        self._num_played = 0
        self._clock: GpuClock | None = None
        self._left: Left = {}  # by the last of several calls in succession

    def serve(self) -> None:
        """Handle requests until the judge closes the channel."""
        while True:
            try:
                message: ToPlayer
                message, fds = receive(self._channel, ToPlayer)  # type: ignore[arg-type]
            except ChannelClosed:
                return
            if isinstance(message, Prepare):
                self._attempt(Done)  # `_attempt` waits for the device
            elif isinstance(message, LoadRecord):
                self._attempt(functools.partial(self._load, message))
            elif isinstance(message, Play):
                self._attempt(functools.partial(self._play, message, fds[0]))
            else:
                self._attempt(functools.partial(self._time, message, fds[0]))

    def _attempt(self, step: Callable[[], FromWorker]) -> None:
        try:
            with torch.no_grad():
                reply = step()
            torch.cuda.synchronize()  # raises kernels' errors, and completes writes that the judge reads
        except LaunchFailed as error:
            reply = Failed("replay", type(error).__name__, str(error), "", refused_by=error.kind, kernel=error.kernel)
        except Exception as error:
            reply = _described(error)
        sys.stdout.flush()
        sys.stderr.flush()
        send(self._channel, reply)

    def _load(self, message: LoadRecord) -> Done:
        torch.set_default_device("cuda")
        kernels = DeviceKernels(message.kernels)
        self._records.append(_Loaded(message.trace, kernels, GpuModules(message.codes), Tuning(kernels), {}, {}))
        return Done()

    def _play(self, message: Play, fd: int) -> Played:
        memory = tensor_arena.attach(message.arena, fd)
        try:
            record = self._records[message.record]
            self._choose(record, memory, message.arena)
            number, self._num_played = self._num_played, self._num_played + 1
            left = self._left if message.state == "continued" else {}
            if message.state != "given":
                self._left = left
            return play(record, memory, message.arena, marks=message.marks, number=number, left=left)
        finally:
            torch.cuda.synchronize()
            memory.close()

    def _choose(self, record: _Loaded, memory: tensor_arena.Memory, spec: ArenaSpec) -> None:
        """Choose the configurations of autotuned kernels, once for each record, on the first inputs that are played."""
        tuned = [n for n, step in enumerate(record.trace.steps) if isinstance(step, Launch) and step.alternatives]
        if not tuned or record.chosen:
            return
        storages = fresh_storages(record.trace, memory, spec)
        for position, step in enumerate(record.trace.steps):
            if position in tuned and isinstance(step, Launch):
                record.chosen[position] = record.tuning.chosen(step, storages)
            _run(record, position, storages)

    def _time(self, message: TimePlay, fd: int) -> Timed:
        """One timed run, whose outputs are written; with `repeats`, that many runs in a row, and no time."""
        memory = tensor_arena.attach(message.arena, fd)
        try:
            record = self._records[message.record]
            storages = fresh_storages(record.trace, memory, message.arena)
            if message.repeats:
                for _ in range(message.repeats):
                    _execute(record, storages)
                return Timed(0.0)
            if self._clock is None:
                self._clock = GpuClock(0)
            took_us = self._clock.time_us(lambda: _execute(record, storages))
            write_outputs(record.trace, storages, memory, message.arena)
            return Timed(took_us)
        finally:
            torch.cuda.synchronize()
            memory.close()


def play(
    record: _Loaded, memory: tensor_arena.Memory, spec: ArenaSpec, *, marks: bool, number: int, left: Left
) -> Played:
    """Run a record on the inputs and the state of an arena, and write its outputs there.

    `number`: that of the call, by which memory that no step has written is filled. `left`: the state that earlier calls
    left, if it differs from the arena's; takes what this call leaves. Raises `LaunchFailed`, ValueError for steps
    that are refused, and errors of the device.
    """
    trace = record.trace
    kept = Kept(trace)
    storages, buffers = _guarded(trace, memory, spec, number, left)
    _execute(record, storages, kept)
    if dirty := kept.left(storages, record.kept):
        storages, buffers = _guarded(trace, memory, spec, number, left)
        _execute(record, storages, Kept(trace, dirty))
    for storage, buffer in zip(trace.storages, buffers, strict=True):
        before, after = buffer[:_GUARD_BYTES], buffer[_GUARD_BYTES + storage.size_bytes :]
        if not (bool((before == _GUARD).all()) and bool((after == _GUARD).all())):
            name = next((step.name for step in trace.steps if not isinstance(step, Operator)), "a kernel")
            text = f"memory beside a tensor of {storage.size_bytes} bytes was written to: a store goes out of bounds"
            raise LaunchFailed("out_of_bounds", name, text)
    write_outputs(trace, storages, memory, spec)
    inputs, state = changed(trace, storages, memory, spec, left)
    chosen = tuple(launch.ir for _, launch in sorted(record.chosen.items()) if launch.ir is not None)
    if not marks:
        return Played((), inputs, chosen=chosen, changed_state=state)
    without = fresh_storages(trace, memory, spec, number)
    _execute(record, without, launches=False)
    coverage = tuple(_coverage(output, storages, without) for output in trace.outputs)
    return Played(coverage, inputs, chosen=chosen, changed_state=state)


def _guarded(
    trace: Trace, memory: tensor_arena.Memory, spec: ArenaSpec, number: int, left: Left
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The storages of a trace as `fresh_storages` makes them, and the buffers within which they lie."""
    given = given_to(spec)
    storages, buffers = [], []
    for storage in trace.storages:
        buffer = torch.full((storage.size_bytes + 2 * _GUARD_BYTES,), _GUARD, dtype=torch.uint8, device=memory.device)
        inner = buffer[_GUARD_BYTES : _GUARD_BYTES + storage.size_bytes]
        unwritten.fill(inner, number)
        if storage.kind in given:
            flat = tensor_arena.flat_view(memory, given[storage.kind][storage.index])
            if flat.numel():
                whole = inner[: flat.numel() * flat.element_size()]
                whole.copy_(left_or(flat.view(torch.uint8), storage, left))
        storages.append(inner)
        buffers.append(buffer)
    return storages, buffers


def _execute(record: _Loaded, storages: list[torch.Tensor], kept: Kept | None = None, *, launches: bool = True) -> None:
    for position, step in enumerate(record.trace.steps):
        if kept is not None:
            kept.begin_step(position, storages)
        if launches or isinstance(step, Operator):
            _run(record, position, storages)


def _run(record: _Loaded, position: int, storages: list[torch.Tensor]) -> None:
    step = record.trace.steps[position]
    if isinstance(step, Operator):
        _operate(step, storages)
    elif isinstance(step, NativeLaunch):
        record.modules.launch(step, [storage.data_ptr() for storage in storages])
    else:
        record.kernels.launch(record.chosen.get(position, step), storages)


def _operate(step: Operator, storages: list[torch.Tensor]) -> None:
    """Run an operator. A result with the layout of the record's becomes the storage; any other is copied into it."""
    for place, made in run_operator(step, storages):
        if has_layout_of(made, place, storages[place.storage].numel()):
            storage = torch.tensor([], dtype=torch.uint8, device=made.device)
            storages[place.storage] = storage.set_(made.untyped_storage())
        else:
            tensor_at(place, storages).copy_(made)


def has_layout_of(made: torch.Tensor, place: Place, num_bytes: int) -> bool:
    """Whether a tensor of this device has the layout that the trace names, in a storage of at least that size."""
    if made.device.type != torch.get_default_device().type:
        return False
    layout = tuple(made.shape), made.stride(), made.storage_offset()
    whole = made.untyped_storage().nbytes() >= num_bytes
    return whole and layout == (place.shape, place.stride, place.offset)


def _coverage(output: Any, storages: list[torch.Tensor], without: list[torch.Tensor]) -> float:
    """The share of an output's elements that differ if no kernel is launched."""
    one, two = (tensor_at(output, each).contiguous().reshape(-1) for each in (storages, without))
    if not one.numel():
        return 1.0
    differs = one.view(torch.uint8) != two.view(torch.uint8)
    return float(differs.view(one.numel(), -1).any(dim=1).float().mean())


def _described(error: Exception) -> Failed:
    code = getattr(error, "error_code", None) if isinstance(error, torch.AcceleratorError | CudaDriverError) else None
    if code is None:
        try:
            torch.cuda.synchronize()
        except torch.AcceleratorError as pending:
            code = getattr(pending, "error_code", None)
    return Failed(
        "replay",
        type(error).__name__,
        str(error)[:_TEXT_CHARS],
        "".join(traceback.format_exception(error, limit=-8))[-_TEXT_CHARS:],
        out_of_memory=isinstance(error, MemoryError | torch.OutOfMemoryError),
        cuda_error=code,
    )


def run(limits: Limits, channel: socket.socket, folder: str) -> None:
    """Serve one judge, in a contained and freshly forked process."""
    scratch_folder.enter(folder)
    assert limits.gpu is not None
    os.environ.update(CUDA_VISIBLE_DEVICES=limits.gpu, CUDA_CACHE_DISABLE="1")
    gc.enable()
    DevicePlayer(channel).serve()
