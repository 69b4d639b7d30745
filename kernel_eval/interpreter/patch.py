"""Triton's language as the interpreter runs it, put in place once instead of at each launch.

The interpreter replaces some hundred functions of `triton.language` before a launch, and puts them back after it,
which costs more than a small kernel, and has Python forget what it knows of the classes concerned. Here they stay: for
a process that interprets every kernel, and compiles none.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_BINARY = "add sub mul truediv floordiv mod lt le gt ge eq ne and or xor lshift rshift"


def install() -> None:
    """From now on, in this process and those forked from it."""
    for name in _BINARY.split():
        _leave_to_tensors(f"__{name}__")
    visible: Any = types.SimpleNamespace(__globals__={"language": tl, "core": tl.core})
    interpreter._patch_lang(visible)
    nothing = interpreter._LangPatchScope()
    interpreter._patch_lang = lambda function: nothing


def _leave_to_tensors(name: str) -> None:
    """A constant of the module on the left of a tensor: the compiler takes it, the interpreter makes it a constant."""
    alone: Callable[[Any, Any], Any] = getattr(tl.constexpr, name)

    def apply(self: tl.constexpr, other: Any) -> Any:
        return NotImplemented if isinstance(other, tl.tensor) else alone(self, other)

    setattr(tl.constexpr, name, apply)
