"""Triton's language as the interpreter runs it, put in place once instead of at each launch.

The interpreter replaces some hundred functions of `triton.language` before a launch, and puts them back after it,
which costs more than a small kernel, and has Python forget what it knows of the classes concerned. Here they stay: for
a process that interprets every kernel, and compiles none.
"""

from __future__ import annotations

import types
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def install() -> None:
    """From now on, in this process and those forked from it."""
    visible: Any = types.SimpleNamespace(__globals__={"language": tl, "core": tl.core})
    interpreter._patch_lang(visible)
    nothing = interpreter._LangPatchScope()
    interpreter._patch_lang = lambda function: nothing
