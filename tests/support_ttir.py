"""Kernels of Triton to the text of their TTIR, and launches of that text on tensors."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource

from weir.kernel_eval.ir.grid.memory import Storage
from weir.kernel_eval.ir.grid.run import Argument, DescriptorArgument, PointerArgument, run
from weir.kernel_eval.ir.limits import RunLimits
from weir.kernel_eval.ir.text.parser import parse

POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float64: "*fp64",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
    torch.bool: "*i1",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.float8_e5m2: "*fp8e5",
    torch.uint32: "*u32",
}


def _only_text(original: Any, last: str) -> Any:
    """Stages that end with a text, so that neither a GPU nor an assembler is needed."""

    def add_stages(backend: Any, stages: Any, options: Any, language: Any = None) -> None:
        real: dict[str, Any] = {}
        original(backend, real, options, language)

        def text(module: Any, metadata: Any) -> str:
            metadata["shared"], metadata["name"] = 0, "kernel"
            return str(module)

        names = list(real)
        for name in names[: names.index(last) + 1]:
            stages[name] = real[name]
        stages["cubin"] = text

    return add_stages


def ttir_of(
    kernel: Any,
    signature: dict[str, str],
    constants: dict[str, Any] | None = None,
    capability: int = 90,
    last: str = "ttir",
    **options: Any,
) -> str:
    """The TTIR (or the text of a later stage) of a `triton.jit` function.

    signature: Triton's names of types; constants have "constexpr".
    """
    source = ASTSource(kernel, signature, constants or {})
    original = CUDABackend.add_stages
    with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        CUDABackend.add_stages = _only_text(original, last)  # type: ignore[method-assign]
        try:
            compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        finally:
            CUDABackend.add_stages = original  # type: ignore[method-assign]
        return str(compiled.asm[last])


def launch_text(text: str, grid: tuple[int, ...], arguments: list[Any], limits: RunLimits | None = None) -> Any:
    """Run TTIR on tensors, which must be contiguous, and numbers; the report."""
    storages: list[Storage] = []
    given: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            given.append(PointerArgument(storage=len(storages)))
            storages.append(Storage(memory=argument.view(-1).view(torch.uint8)))
        elif isinstance(argument, DescriptorArgument):
            given.append(argument)
        else:
            given.append(argument)
    full = (*grid, 1, 1)[:3]
    return run(parse(text), full, given, storages, limits)


def signature_of(kernel: Any, arguments: list[Any], constants: dict[str, Any]) -> dict[str, str]:
    """Triton's names of the types of arguments."""
    names = [name for name in kernel.arg_names if name not in constants]
    kinds: dict[str, str] = {}
    for name, argument in zip(names, arguments, strict=True):
        if isinstance(argument, torch.Tensor):
            kinds[name] = POINTERS[argument.dtype]
        elif isinstance(argument, float):
            kinds[name] = "fp32"
        else:
            kinds[name] = "i32" if -(1 << 31) <= argument < 1 << 31 else "i64"
    return {name: kinds.get(name, "constexpr") for name in kernel.arg_names}


def launch(
    kernel: Any, grid: tuple[int, ...], arguments: list[Any], constants: dict[str, Any], limits: RunLimits | None = None
) -> Any:
    """Compile a kernel to TTIR for its arguments and run that; the report."""
    text = ttir_of(kernel, signature_of(kernel, arguments, constants), constants)
    return launch_text(text, grid, arguments, limits)
