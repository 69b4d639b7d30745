"""The compile worker: runs a candidate's model with every kernel launch replaced by a compilation for a target.

So the compiler sees the arguments, types, alignments, meta-parameters and closures of the candidate's own launches,
including kernels that are defined inside functions. No kernel runs, so that the results of `forward` are meaningless,
and it may stop early if its control flow depends on them: the judge sees which kernels were reached.

As untrusted and as contained as a worker: it starts no program (it makes PTX, which another process assembles). It is
used only to explain why a candidate failed, or for tasks that relax the proof; no answer counts because of its
messages. Candidates that need the proof are compiled by `builder.py`, which runs none of their code.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas_version
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from weir.kernel_eval.compiler import mlir_context
from weir.kernel_eval.ipc import tensor_arena
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import BuiltKernel, Compile, Compiled, RefusedKernel
from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.tasks.seeds import seed_everything
from weir.kernel_eval.toolchain import stub_driver
from weir.kernel_eval.toolchain.targets import MAX_GRID, MAX_THREADS_PER_BLOCK, TARGETS, Target
from weir.kernel_eval.worker import autotune
from weir.kernel_eval.worker.candidate import entry_point, kernel_id, load_candidate

_MESSAGE_CHARS = 4000
_NEWEST = "sm_100"


class LaunchRefused(Exception):
    """Raised in the candidate for a launch that would fail on the device."""


class Builds:
    """The compiled kernels of all launches so far. Replaces `JITFunction.run`."""

    def __init__(self, stub: stub_driver.StubDriver, name_of: Callable[[Any], str]) -> None:
        self._stub = stub
        self._name_of = name_of
        self._seen: set[int] = set()
        self.built: list[BuiltKernel] = []
        self.refused: dict[str, RefusedKernel] = {}

    def install(self) -> None:
        """Replace every launch in this process by a compilation."""
        run = JITFunction.run

        def build(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            name = self._name_of(kernel)
            try:
                compiled = run(kernel, *args, grid=None, warmup=True, **kwargs)
                self._check(compiled.metadata, _grid_size(grid, kernel, args, kwargs))
            except LaunchRefused as error:
                self._refuse(name, "launch", error)
            except OutOfResources as error:
                self._refuse(name, "shared_memory", error)
            except Exception as error:  # any error of the compiler is about this kernel
                newer = self._compiles_elsewhere(lambda: run(kernel, *args, grid=None, warmup=True, **kwargs))
                self._refuse(name, "arch" if newer else "compile", error)
            self._keep(name, compiled)
            return compiled

        JITFunction.run = build
        autotune.install()

    def _check(self, metadata: Any, grid: tuple[int, ...]) -> None:
        target = self._stub.target
        if metadata.shared > target.max_shared_bytes:
            raise OutOfResources(metadata.shared, target.max_shared_bytes, "shared memory")
        threads = metadata.num_warps * 32
        if threads > MAX_THREADS_PER_BLOCK:
            raise LaunchRefused(f"{threads} threads per block (num_warps={metadata.num_warps}), at most 1024 are")
        if any(not 0 <= size <= limit for size, limit in zip(grid, MAX_GRID, strict=False)):
            raise LaunchRefused(f"a grid of {grid}; at most {MAX_GRID} is possible")

    def _refuse(self, kernel: str, reason: Any, error: Exception) -> None:
        text = str(error) if isinstance(error, CompilationError) else f"{type(error).__name__}: {error}"
        self.refused[kernel] = RefusedKernel(kernel, reason, text[-_MESSAGE_CHARS:])
        raise error

    def _keep(self, kernel: str, compiled: Any) -> None:
        self.refused.pop(kernel, None)  # an earlier configuration of it was refused
        if id(compiled) in self._seen:
            return
        self._seen.add(id(compiled))
        metadata = compiled.metadata
        text = compiled.kernel.decode()
        self.built.append(BuiltKernel(kernel, text, metadata.shared, metadata.num_warps, metadata.num_stages))

    def _compiles_elsewhere(self, attempt: Callable[[], Any]) -> bool:
        """Whether the newest architecture accepts a kernel that the target refuses."""
        target = self._stub.target
        self._stub.target = TARGETS[_NEWEST]
        try:
            attempt()
        except Exception:
            return False
        finally:
            self._stub.target = target
        return target.name != _NEWEST


def prepare() -> None:
    """Prepare the zygote: compilations end with PTX, and the compiler's lazy queries are done."""
    add_stages = CUDABackend.add_stages

    def stop_at_ptx(backend: Any, stages: dict[str, Any], *rest: Any) -> None:
        add_stages(backend, stages, *rest)
        stages["cubin"] = lambda text, metadata: text.encode()  # instead of starting ptxas

    CUDABackend.add_stages = stop_at_ptx
    for target in TARGETS.values():
        get_ptxas_version(target.arch)  # starts ptxas once and caches the version; a compile worker cannot
    triton.knobs.compilation.store_binary_only = True
    triton.knobs.compilation.disable_line_info = True  # the code is the same without it


def run(channel: socket.socket, folder: str) -> None:
    """Serve one request, in a contained and freshly forked process."""
    os.chdir(folder)
    os.environ["TMPDIR"] = os.environ["HOME"] = folder
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    gc.enable()
    message, fds = receive(channel, Compile)
    builds = Builds(stub_driver.install(TARGETS[message.target]), lambda kernel: kernel_id(kernel.fn))
    builds.install()
    stopped = _run_model(message, fds, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    send(channel, Compiled(tuple(builds.built), tuple(builds.refused.values()), stopped))


def _run_model(message: Compile, fds: list[int], folder: str) -> str | None:
    """Call the model once. Returns the error that it raised, as text; None if it returned."""
    try:
        init = tensor_arena.read_value(tensor_arena.attach(message.init, fds[0]), message.init.arguments)
        inputs = tensor_arena.read_value(tensor_arena.attach(message.call, fds[1]), message.call.arguments)
        with torch.no_grad(), CpuForCuda():
            model: Any = entry_point(load_candidate(message.source, folder))
            seed_everything(message.weight_seed)
            model(*init)(*inputs)
    except BaseException as error:  # a candidate may raise anything, SystemExit too
        return f"{type(error).__name__}: {error}"[:_MESSAGE_CHARS]
    return None


def _grid_size(grid: Any, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The grid of a launch; a callable gets the arguments by name, as from Triton."""
    if callable(grid):
        named = {name: value.default for name, value in kernel.signature.parameters.items()}
        grid = grid({**named, **dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
    sizes = grid if isinstance(grid, tuple | list) else (grid,)
    return tuple(int(size) for size in sizes)


def warm_up(target: Target, folder: str) -> None:
    """Compile some kernels once, so that no compile worker pays for the compiler's first use."""
    from weir.kernel_eval.worker.warm_up import compile_all

    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    stub = stub_driver.install(target)
    mlir_context.install(CUDABackend(stub.get_current_target()))
    with torch.no_grad(), CpuForCuda():
        compile_all()
