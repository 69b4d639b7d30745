"""A process that holds a candidate: imports it, constructs its model, and reports whatever it raises.

What workers on a GPU (`worker.py`) and recorders (`recording/record_worker.py`) share. It is never trusted: from `Load`
on, the candidate may have changed anything in this process. Therefore it holds no expected value, no input of a trial
that it does not need, and no verdict.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from weir.kernel_eval.gpu.cuda_driver import CudaDriverError
from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import send
from weir.kernel_eval.ipc.messages import (
    Constructed,
    Done,
    Failed,
    FromWorker,
    Init,
    Load,
    Output,
    Phase,
    Refusal,
    SendState,
)
from weir.kernel_eval.limits import Limits
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.toolchain import scratch_folder
from weir.kernel_eval.worker.candidate import entry_point, load_candidate
from weir.kernel_eval.worker.kernel_values import NeedsKernelResult
from weir.kernel_eval.worker.recorder import Recorder

_TEXT_CHARS = 2000
_TRACEBACK_CHARS = 4000


class KernelRefused(Exception):
    """A launch that would fail on the device; raised in the candidate, with the reason and the kernel's name."""

    def __init__(self, reason: Refusal, kernel: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.kernel = kernel


class CandidateProcess:
    """One candidate. `mode` is entered whenever its code runs."""

    def __init__(
        self,
        channel: socket.socket,
        limits: Limits,
        folder: str,
        recorder: Recorder,
        mode: contextlib.AbstractContextManager[Any],
    ) -> None:
        self._channel = channel
        self._folder = folder
        self._on_gpu = limits.gpu is not None
        self._recorder = recorder
        self._mode = mode
        self._state: list[torch.UntypedStorage] = []
        self._entry: Any = None
        self._model: Any = None

    def attempt(self, phase: Phase, step: Callable[[], FromWorker]) -> None:
        """Run one step and send its reply; any exception of the candidate becomes a message."""
        try:
            with torch.no_grad():
                reply = step()
            if self._on_gpu:
                torch.cuda.synchronize()  # raises kernels' errors, and completes writes that the judge reads
        except BaseException as error:  # a candidate may raise anything, SystemExit too
            reply = describe(error, phase)
            if not self._on_gpu:  # a code of CUDA's says there that the process has no device
                reply = msgspec.structs.replace(reply, cuda_error=None)
            elif reply.cuda_error is None:
                reply = msgspec.structs.replace(reply, cuda_error=_error_of_device())
        sys.stdout.flush()
        sys.stderr.flush()
        send(self._channel, reply)

    def load(self, load: Load) -> Done | Failed:
        """Import the candidate."""
        with self._mode:
            self._entry = entry_point(load_candidate(load.source, self._folder))
        if self._entry is None:
            return Failed("entry_point", "AttributeError", "the candidate defines no class ModelNew", "")
        return Done()

    def init(self, init: Init, fd: int) -> Constructed:
        """Construct its model."""
        arguments = tensor_arena.read_value(tensor_arena.attach(init.arena, fd), init.arena.arguments)
        seed_everything(init.weight_seed, on_gpu=self._on_gpu)
        with self._mode:
            self._model = self._entry(*arguments)
            if self._on_gpu and isinstance(self._model, torch.nn.Module):
                self._model = self._model.cuda()
        self._state = self._recorder.take_state()
        sizes = tuple(storage.nbytes() for storage in self._state)
        return Constructed(sizes, self._recorder.named_state(_named_tensors(self._model)))

    def send_state(self, message: SendState, fd: int) -> Done:
        """Write the contents of all storages that exist after construction."""
        memory = tensor_arena.attach(message.arena, fd)
        for storage, place in zip(self._state, message.arena.outputs, strict=True):
            if storage.nbytes():
                tensor_arena.flat_view(memory, place).copy_(_bytes_of(storage))
        self._state = []
        return Done()


def _named_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters by their names, then buffers, then other tensors that a model or a module in it holds."""
    if not isinstance(model, torch.nn.Module):
        yield from (
            (name, value) for name, value in getattr(model, "__dict__", {}).items() if isinstance(value, torch.Tensor)
        )
        return
    yield from model.named_parameters()
    yield from model.named_buffers()
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def enter_folder(limits: Limits, folder: str) -> None:
    """Prepare a freshly forked and contained process: its folder, caches and device."""
    scratch_folder.enter(folder)
    os.environ["CUDA_VISIBLE_DEVICES"] = limits.gpu or ""
    os.environ["CUDA_CACHE_DISABLE"] = "1"


def describe(error: BaseException, phase: Phase) -> Failed:
    """The message for an exception."""
    text = str(error)
    return Failed(
        phase=phase,
        exception=type(error).__name__,
        message=text[:_TEXT_CHARS],
        traceback="".join(traceback.format_exception(error, limit=-8))[-_TRACEBACK_CHARS:],
        os_errno=error.errno if isinstance(error, OSError) else None,
        refused_by=_refused_by(error),
        kernel=error.kernel if isinstance(error, KernelRefused) else "",
        cuda_error=_code_of(error),
        # torch's CPU allocator raises a plain RuntimeError, which only its text identifies
        out_of_memory=isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate memory" in text,
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


def _refused_by(error: BaseException) -> Refusal | None:
    if isinstance(error, KernelRefused):
        return error.reason
    if isinstance(error, NeedsKernelResult):
        return "host_read"
    if isinstance(error, CompilationError | PTXASError):
        return "compiler"
    if isinstance(error, OutOfResources):
        return "threads" if error.name == "threads" else "shared_memory"
    return None


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage)


def describe_output(output: Any, arguments: Any) -> Output:
    """The type, dtype and shape of an output, and whether it lies in the memory of an argument."""
    if type(output) is not torch.Tensor:
        return Output(type(output).__name__)
    storages = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, torch.Tensor) and a.numel()}
    return Output(
        "Tensor",
        str(output.dtype).removeprefix("torch."),
        tuple(output.shape),
        output.numel() > 0 and output.untyped_storage().data_ptr() in storages,
    )
