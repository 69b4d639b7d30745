"""One MLIR context with loaded dialects, created before children are forked: loading takes as long as a small kernel.

Triton creates a context for each compilation. A child compiles the kernels of one candidate, in its own copy of this
context, in which only the warm-up was compiled.
"""

from __future__ import annotations

from typing import Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import compiler


class _OneContext:
    """Replaces Triton's module `ir` in its compiler."""

    def __init__(self, ir: Any, context: Any) -> None:
        self._ir = ir
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ir, name)

    def context(self) -> Any:
        """The shared context."""
        return self._context

    def load_dialects(self, context: Any) -> None:
        """Nothing to do: they are loaded."""


def install(backend: CUDABackend) -> None:
    """Use one context in this process and those forked from it."""
    ir = compiler.ir
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    compiler.ir = _OneContext(ir, context)
    CUDABackend.load_dialects = lambda backend, context: None
