"""The builder: compiles the IR of a record's kernels for a target, in a process that runs no code of the candidate.

The IR is the text that gave the answer: it was played on the trials' inputs, with the options of its launches. Triton
reads it as it reads a file of its own cache, and makes PTX. Contained like every worker, because a compiler that reads
a candidate's text may have bugs. The text that Triton prints of what it read goes back, so that the judge can compare.
"""

from __future__ import annotations

import socket
import sys
from typing import Any, Literal

from triton.backends.nvidia.compiler import CUDABackend, get_ptxas_version
from triton.compiler import compiler
from triton.runtime.errors import OutOfResources

from weir.kernel_eval.compiler import private_cache
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import Build, BuiltKernel, Compiled, KernelIr, RefusedKernel
from weir.kernel_eval.toolchain import scratch_folder, stub_driver
from weir.kernel_eval.toolchain.targets import MAX_THREADS_PER_BLOCK, TARGETS

_MESSAGE_CHARS = 4000


class LaunchRefused(Exception):
    """A kernel that would fail to launch on the device."""


def prepare() -> None:
    """Prepare the zygote: compilations end with PTX, their cache is theirs, the compiler's lazy queries are done."""
    import triton

    private_cache.install()
    add_stages = CUDABackend.add_stages

    def stop_at_ptx(backend: Any, stages: dict[str, Any], *rest: Any) -> None:
        add_stages(backend, stages, *rest)
        lower = stages["ttgir"]
        stages["ttgir"] = lambda module, metadata: lower(module, _noted(module, metadata))
        stages["cubin"] = lambda text, metadata: text.encode()  # instead of starting ptxas

    CUDABackend.add_stages = stop_at_ptx
    for target in TARGETS.values():
        get_ptxas_version(target.arch)  # starts ptxas once and caches the version; a builder cannot
    triton.knobs.compilation.store_binary_only = True
    triton.knobs.compilation.disable_line_info = True  # the code is the same without it


def _noted(module: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata, with the IR as it was recorded: as text without locations."""
    metadata["printed"] = str(module.str_nodebug())
    return metadata


def run(channel: socket.socket, folder: str) -> None:
    """Serve one request, in a contained and freshly forked process."""
    scratch_folder.enter(folder)
    message, _ = receive(channel, Build)
    compiled = build(message, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    send(channel, compiled)


def build(message: Build, folder: str) -> Compiled:
    """Compile each kernel, up to the first that is refused."""
    stub = stub_driver.install(TARGETS[message.target])
    built: list[BuiltKernel] = []
    for number, ir in enumerate(message.irs):
        reason: Literal["compile", "shared_memory", "launch"] = "compile"
        try:
            built.append(_compile(ir, f"{folder}/kernel{number}.ttir", stub))
            continue
        except LaunchRefused as error:
            reason, text = "launch", str(error)
        except OutOfResources as error:
            reason, text = "shared_memory", str(error)
        except Exception as error:  # any error of the compiler is about this kernel
            text = f"{type(error).__name__}: {error}"
        return Compiled(tuple(built), (RefusedKernel(ir.kernel, reason, text[-_MESSAGE_CHARS:]),))
    return Compiled(tuple(built), ())


def _compile(ir: KernelIr, path: str, stub: stub_driver.StubDriver) -> BuiltKernel:
    threads = ir.num_warps * 32
    if threads > MAX_THREADS_PER_BLOCK:
        raise LaunchRefused(f"{threads} threads per block (num_warps={ir.num_warps}), at most 1024 are possible")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ir.text)
    compiled = compiler.compile(path, target=stub.get_current_target(), options=dict(ir.options))
    metadata = compiled.metadata
    if metadata.shared > stub.target.max_shared_bytes:
        raise OutOfResources(metadata.shared, stub.target.max_shared_bytes, "shared memory")
    text = compiled.asm["cubin"].decode()
    return BuiltKernel(ir.kernel, metadata.printed, text, metadata.shared, metadata.num_warps, metadata.num_stages)
