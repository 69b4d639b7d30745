"""The worker: imports a candidate, calls it with the tensors that the judge sends, and writes its raw answers back.

It is never trusted: from `Load` on, the candidate may have changed anything in this process. Therefore it holds no
expected value, no seed of an input and no verdict. Its reports (launches, overruns, exceptions) concern only the
candidate that could have forged them, and the judge compares the answers.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import torch
from triton.compiler.errors import CompilationError
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError, OutOfResources, PTXASError

from weir.kernel_eval.gpu.cuda_driver import CudaDriverError
from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import ChannelClosed, receive, send
from weir.kernel_eval.ipc.messages import (
    Answered,
    ArenaSpec,
    Call,
    Constructed,
    Done,
    Failed,
    FromJudge,
    FromWorker,
    Init,
    Load,
    Output,
    Phase,
    Prepare,
    Replay,
    Replayed,
    SendState,
    Timed,
    TimeReplay,
)
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.targets import TARGETS
from weir.kernel_eval.worker import autotune, remote_assembler
from weir.kernel_eval.worker.candidate import entry_point, load_candidate
from weir.kernel_eval.worker.gpu_replayer import GpuReplayer
from weir.kernel_eval.worker.guard_zones import GuardedAllocations, GuardedGpuAllocations
from weir.kernel_eval.worker.recorder import Recorder
from weir.kernel_eval.worker.replayer import Replayer

_TEXT_CHARS = 2000
_TRACEBACK_CHARS = 4000


class Worker:
    """One candidate, from its source to its last answer."""

    def __init__(self, channel: socket.socket, limits: Limits, folder: str) -> None:
        self._channel = channel
        self._target = limits.target
        self._folder = folder
        self._on_gpu = limits.gpu is not None
        self._allocations = (GuardedGpuAllocations if self._on_gpu else GuardedAllocations)(limits.guard_bytes)
        self._replayer: GpuReplayer | None = None
        self._recorder = Recorder()
        self._state: list[torch.UntypedStorage] = []
        self._entry: Any = None
        self._model: Any = None
        self._answers: list[tuple[tensor_arena.Memory, ArenaSpec, list[torch.Tensor]]] = []

    def serve(self) -> None:
        """Handle requests until the judge closes the channel."""
        self._recorder.install()
        if self._on_gpu:
            from weir.kernel_eval.worker.remote_compiler import (
                RemoteCompiler,  # imports setuptools: only its zygote does
            )

            remote_assembler.install(self._channel, self._target)
            RemoteCompiler(self._channel, self._recorder, self._folder).install()
        else:
            stub_driver.install(TARGETS[self._target])
            _check_device_assertions()
        while True:
            try:
                message: FromJudge
                message, fds = receive(self._channel, FromJudge)  # type: ignore[arg-type]
            except ChannelClosed:
                return
            if isinstance(message, Prepare):
                self._attempt("load", Done)  # `_attempt` waits for the device
            elif isinstance(message, Load):
                self._attempt("load", functools.partial(self._load, message))
            elif isinstance(message, Init):
                self._attempt("init", functools.partial(self._init, message, fds[0]))
            elif isinstance(message, Call):
                self._attempt("call", functools.partial(self._call, message, fds[0]))
            elif isinstance(message, SendState):
                self._attempt("init", functools.partial(self._send_state, message, fds[0]))
            elif isinstance(message, TimeReplay):
                self._attempt("replay", functools.partial(self._time, message, fds[0]))
            elif isinstance(message, Replay):
                self._attempt("replay", functools.partial(self._replay, message, fds[0]))
            else:
                self._attempt("call", self._write_again)

    def _attempt(self, phase: Phase, step: Callable[[], FromWorker]) -> None:
        """Run one step and send its reply; any exception of the candidate becomes a message."""
        try:
            with torch.no_grad():
                reply = step()
            if self._on_gpu:
                torch.cuda.synchronize()  # raises kernels' errors, and completes writes that the judge reads
        except BaseException as error:  # a candidate may raise anything, SystemExit too
            reply = describe(error, phase)
            if phase == "call" and reply.in_kernel and reply.exception == "NotImplementedError":
                reply = msgspec.structs.replace(reply, trace=self._recorder.finish_failed())
            if self._on_gpu and reply.cuda_error is None:
                reply = msgspec.structs.replace(reply, cuda_error=_error_of_device())
        sys.stdout.flush()
        sys.stderr.flush()
        send(self._channel, reply)

    def _load(self, load: Load) -> Done | Failed:
        if not self._on_gpu:
            autotune.install(load.skipped_configs)
        with self._allocations:
            self._entry = entry_point(load_candidate(load.source, self._folder))
        if self._entry is None:
            return Failed("entry_point", "AttributeError", "the candidate defines no class ModelNew", "")
        return Done()

    def _init(self, init: Init, fd: int) -> Constructed:
        arguments = tensor_arena.read_value(tensor_arena.attach(init.arena, fd), init.arena.arguments)
        seed_everything(init.weight_seed, on_gpu=self._on_gpu)
        with self._allocations:
            self._model = self._entry(*arguments)
            if self._on_gpu and isinstance(self._model, torch.nn.Module):
                self._model = self._model.cuda()
        self._state = self._recorder.take_state()
        return Constructed(tuple(storage.nbytes() for storage in self._state))

    def _send_state(self, message: SendState, fd: int) -> Done:
        memory = tensor_arena.attach(message.arena, fd)
        for storage, place in zip(self._state, message.arena.outputs, strict=True):
            if storage.nbytes():
                tensor_arena.flat_view(memory, place).copy_(_bytes_of(storage))
        self._state = []
        return Done()

    def _replay(self, replay: Replay, fd: int) -> Replayed:
        memory = tensor_arena.attach(replay.arena, fd)
        if not self._on_gpu:
            return Replayer(replay, memory, self._folder).run()
        torch.set_default_device("cuda")
        self._replayer = GpuReplayer(replay, self._folder)
        return self._replayer.run(memory, replay.arena)

    def _time(self, message: TimeReplay, fd: int) -> Timed:
        memory = tensor_arena.attach(message.arena, fd)
        try:
            assert self._replayer is not None
            return self._replayer.time(memory, message.arena, message.repeats)
        finally:
            memory.close()

    def _call(self, call: Call, fd: int) -> Answered:
        memory = tensor_arena.attach(call.arena, fd)
        arguments = tensor_arena.read_value(memory, call.arena.arguments)
        self._recorder.start(tensor_arena.tensors_among(arguments))
        with self._recorder, self._allocations:
            answer = self._model(*arguments)
        outputs = list(answer) if isinstance(answer, list | tuple) else [answer]
        trace = self._recorder.finish(outputs)
        self._answers.append((memory, call.arena, outputs))
        self._write(memory, call.arena, outputs)
        return Answered(
            tuple(_describe_output(output, arguments) for output in outputs),
            trace,
            self._allocations.take_overrun(),
        )

    def _write(self, memory: tensor_arena.Memory, spec: ArenaSpec, outputs: list[torch.Tensor]) -> None:
        for output, place in zip(outputs, spec.outputs, strict=False):
            if isinstance(output, torch.Tensor) and tuple(output.shape) == place.shape and output.numel():
                tensor_arena.flat_view(memory, place).view(place.shape).copy_(output)

    def _write_again(self) -> Done:
        for memory, spec, outputs in self._answers:
            self._write(memory, spec, outputs)
        return Done()


def run(limits: Limits, channel: socket.socket, folder: str) -> None:
    """Serve one judge, in a contained and freshly forked process."""
    os.chdir(folder)
    os.environ["TMPDIR"] = os.environ["HOME"] = folder
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
    if limits.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = limits.gpu
        os.environ["CUDA_CACHE_DISABLE"] = "1"
    gc.enable()
    Worker(channel, limits, folder).serve()


def describe(error: BaseException, phase: Phase) -> Failed:
    """The message for an exception; for the interpreter's wrapper, that of its cause."""
    in_kernel = isinstance(error, InterpreterError)
    cause = error
    while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause)
    return Failed(
        phase=phase,
        exception="DeviceAssertion" if _is_device_assertion(cause) else type(cause).__name__,
        message=text[:_TEXT_CHARS],
        traceback="".join(traceback.format_exception(cause, limit=-8))[-_TRACEBACK_CHARS:],
        in_kernel=in_kernel,
        os_errno=cause.errno if isinstance(cause, OSError) else None,
        refused_by=_refused_by(cause),
        cuda_error=_code_of(cause),
        # torch's CPU allocator raises a plain RuntimeError, which only its text identifies
        out_of_memory=isinstance(cause, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in text,
    )


def _code_of(error: BaseException) -> int | None:
    is_of_device = isinstance(error, torch.AcceleratorError | CudaDriverError)
    return getattr(error, "error_code", None) if is_of_device else None


def _error_of_device() -> int | None:
    """The pending error of the device, for an error of Triton without a code."""
    try:
        torch.cuda.synchronize()
    except Exception as error:
        return _code_of(error)
    return None


def _refused_by(error: BaseException) -> Literal["compiler", "shared_memory", "threads"] | None:
    if isinstance(error, CompilationError | PTXASError):
        return "compiler"
    if isinstance(error, OutOfResources):
        return "threads" if error.name == "threads" else "shared_memory"
    return None


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage)


def _check_device_assertions() -> None:
    """Enable `tl.device_assert` in the interpreter, without the integer overflow checks of debug mode."""
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, debug=True, sanitize_overflow=False)


def _is_device_assertion(error: BaseException) -> bool:
    """Whether `tl.device_assert` raised the error, by its frame: the interpreter has no exception type for it."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return isinstance(error, AssertionError) and bool(frames) and frames[0].name == "create_assert"


def _describe_output(output: Any, arguments: Any) -> Output:
    if type(output) is not torch.Tensor:
        return Output(type(output).__name__)
    storages = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, torch.Tensor) and a.numel()}
    return Output(
        "Tensor",
        str(output.dtype).removeprefix("torch."),
        tuple(output.shape),
        output.numel() > 0 and output.untyped_storage().data_ptr() in storages,
    )
