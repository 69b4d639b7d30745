"""Patches Triton's language for the interpreter once, instead of at each launch.

The interpreter replaces some hundred functions of `triton.language` before a launch and restores them after it, which
costs more than a small kernel, and invalidates Python's caches of the classes concerned. In a process that interprets
every kernel and compiles none, the patch can stay.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_BINARY = "add sub mul truediv floordiv mod lt le gt ge eq ne and or xor lshift rshift"


def install() -> None:
    """Patch this process and those forked from it."""
    for name in _BINARY.split():
        _leave_to_tensors(f"__{name}__")
    visible: Any = types.SimpleNamespace(__globals__={"language": tl, "core": tl.core})
    interpreter._patch_lang(visible)
    nothing = interpreter._LangPatchScope()
    interpreter._patch_lang = lambda function: nothing


def _leave_to_tensors(name: str) -> None:
    """Let the tensor handle an operator with a constexpr on its left, as the compiler does."""
    alone: Callable[[Any, Any], Any] = getattr(tl.constexpr, name)

    def apply(self: tl.constexpr, other: Any) -> Any:
        return NotImplemented if isinstance(other, tl.tensor) else alone(self, other)

    setattr(tl.constexpr, name, apply)
