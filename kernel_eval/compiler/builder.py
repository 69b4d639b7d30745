"""The builder: compiles the IR of a record's kernels for a target, in a process that runs no code of the candidate.

The IR is the text that gave the answer: it was played on the trials' inputs, with the options of its launches. Triton
reads it as it reads a file of its own cache, and makes PTX. Contained like every worker, because a compiler that reads
a candidate's text may have bugs. The text that Triton prints of what it read goes back, so that the judge can compare.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Any, Literal

import msgspec
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas_version
from triton.compiler import compiler
from triton.runtime.errors import OutOfResources

from weir.kernel_eval.compiler import private_cache
from weir.kernel_eval.ipc.framing import receive, send
from weir.kernel_eval.ipc.messages import (
    Build,
    BuiltKernel,
    Compiled,
    KernelIr,
    LaunchForm,
    RefusedKernel,
    TensorMap,
)
from weir.kernel_eval.toolchain import scratch_folder, stub_driver
from weir.kernel_eval.toolchain.targets import MAX_THREADS_PER_BLOCK, TARGETS, named

_MESSAGE_CHARS = 4000


class LaunchRefused(Exception):
    """A kernel that would fail to launch on the device."""


def prepare(target: str) -> None:
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
    for known in {*TARGETS.values(), named(target)}:
        get_ptxas_version(known.arch)  # starts ptxas once and caches the version; a builder cannot
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
    """Compile each kernel, up to the first that is refused and has to be built; those that need not be come last."""
    stub = stub_driver.install(named(message.target))
    built: list[BuiltKernel] = []
    refused: list[RefusedKernel] = []
    started = time.monotonic()
    for number in sorted(range(len(message.irs)), key=lambda number: number in message.optional):
        ir, optional = message.irs[number], number in message.optional
        if optional and built and time.monotonic() - started > message.optional_s:
            break
        reason: Literal["compile", "shared_memory", "launch"] = "compile"
        try:
            built.append(_compile(number, ir, f"{folder}/kernel{number}.ttir", stub))
            continue
        except LaunchRefused as error:
            reason, text = "launch", str(error)
        except OutOfResources as error:
            reason, text = "shared_memory", str(error)
        except Exception as error:  # any error of the compiler is about this kernel
            text = f"{type(error).__name__}: {error}"
        refused.append(RefusedKernel(number, ir.kernel, reason, text[-_MESSAGE_CHARS:]))
        if not optional:
            break
    return Compiled(tuple(built), tuple(refused))


def _compile(number: int, ir: KernelIr, path: str, stub: stub_driver.StubDriver) -> BuiltKernel:
    threads = ir.num_warps * 32
    if threads > MAX_THREADS_PER_BLOCK:
        raise LaunchRefused(f"{threads} threads per block (num_warps={ir.num_warps}), at most 1024 are possible")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ir.text)
    compiled = compiler.compile(path, target=stub.get_current_target(), options=dict(ir.options))
    metadata = compiled.metadata
    if metadata.shared > stub.target.max_shared_bytes:
        raise OutOfResources(metadata.shared, stub.target.max_shared_bytes, "shared memory")
    return BuiltKernel(
        number,
        ir.kernel,
        metadata.printed,
        compiled.asm["cubin"].decode(),
        metadata.shared,
        metadata.num_warps,
        metadata.num_stages,
        _form(compiled),
    )


def _form(compiled: Any) -> LaunchForm:
    metadata = compiled.metadata
    maps = getattr(metadata, "tensordesc_meta", None) or ()
    return LaunchForm(
        entry=metadata.name,
        types=tuple(map(str, compiled.src.signature.values())),
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        shared_bytes=metadata.shared,
        scratch_bytes=metadata.global_scratch_size,
        scratch_align=metadata.global_scratch_align,
        cooperative=bool(metadata.launch_cooperative_grid),
        serial=bool(metadata.launch_pdl),
        maps=tuple(msgspec.convert(one, TensorMap) for one in maps if one is not None),
    )
