"""The compile worker: runs a candidate's model with every kernel launch replaced by a compilation for a target.

That way the compiler sees the very arguments, types, alignments, meta-parameters and closures of the candidate's own
launches, kernels that are made inside functions included; a record of launches from the interpreter would have to
name them. No kernel runs, so what `forward` computes is meaningless, and it may stop early where its control flow
depends on a result: the judge sees which kernels were reached.

As untrusted as a worker, and as contained: it starts no program (PTX is made in process, and assembled elsewhere). It
is asked only why a candidate failed that has failed already, or where a task's rules do without the proof: no answer
counts because of what it says. What counts is compiled by `builder.py`, which runs nothing of the candidate.
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
    """Raised to the candidate where a launch would have failed on the device."""


class Builds:
    """What was launched so far, compiled. Takes the place of `JITFunction.run`."""

    def __init__(self, stub: stub_driver.StubDriver, name_of: Callable[[Any], str]) -> None:
        self._stub = stub
        self._name_of = name_of
        self._seen: set[int] = set()
        self.built: list[BuiltKernel] = []
        self.refused: dict[str, RefusedKernel] = {}

    def install(self) -> None:
        """From now on a launch compiles, in this process."""
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
            except Exception as error:  # whatever the compiler raises, it says about this kernel
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
        self.refused.pop(kernel, None)  # a configuration before this one did not work
        if id(compiled) in self._seen:
            return
        self._seen.add(id(compiled))
        metadata = compiled.metadata
        text = compiled.kernel.decode()
        self.built.append(BuiltKernel(kernel, text, metadata.shared, metadata.num_warps, metadata.num_stages))

    def _compiles_elsewhere(self, attempt: Callable[[], Any]) -> bool:
        """Whether the newest architecture takes what this one refuses: then the architecture is at fault."""
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
    """For the zygote, once: what is compiled ends as PTX, and the compiler has been used."""
    add_stages = CUDABackend.add_stages

    def stop_at_ptx(backend: Any, stages: dict[str, Any], *rest: Any) -> None:
        add_stages(backend, stages, *rest)
        stages["cubin"] = lambda text, metadata: text.encode()  # ptxas would be a program, started in here

    CUDABackend.add_stages = stop_at_ptx
    for target in TARGETS.values():
        get_ptxas_version(target.arch)  # asks the program, once; a compile worker may start none
    triton.knobs.compilation.store_binary_only = True
    triton.knobs.compilation.disable_line_info = True  # nobody debugs what is thrown away; the code is the same


def run(channel: socket.socket, folder: str) -> None:
    """What a contained, freshly forked process does: one question, one answer."""
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
    """One call of the model; what it raised, if it did."""
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
    """A launch's grid; callables get the arguments by name, as Triton gives them."""
    if callable(grid):
        named = {name: value.default for name, value in kernel.signature.parameters.items()}
        grid = grid({**named, **dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
    sizes = grid if isinstance(grid, tuple | list) else (grid,)
    return tuple(int(size) for size in sizes)


def warm_up(target: Target, folder: str) -> None:
    """Compile once, so that no compile worker pays for the compiler's first use."""
    from weir.kernel_eval.worker.warm_up import compile_all

    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    stub = stub_driver.install(target)
    mlir_context.install(CUDABackend(stub.get_current_target()))
    with torch.no_grad(), CpuForCuda():
        compile_all()
