"""One context of MLIR with its dialects, made before children are forked: loading them takes as long as a small kernel.

Triton makes a context for each compilation. A child compiles the kernels of one candidate, and has a copy of the
context that nothing but warming up was compiled in.
"""

from __future__ import annotations

from typing import Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import compiler


class _OneContext:
    """In place of Triton's module `ir`, for `compile`."""

    def __init__(self, ir: Any, context: Any) -> None:
        self._ir = ir
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ir, name)

    def context(self) -> Any:
        """The one there is."""
        return self._context

    def load_dialects(self, context: Any) -> None:
        """They are loaded."""


def install(backend: CUDABackend) -> None:
    """From now on, in this process and those forked from it."""
    ir = compiler.ir
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    compiler.ir = _OneContext(ir, context)
    CUDABackend.load_dialects = lambda backend, context: None
