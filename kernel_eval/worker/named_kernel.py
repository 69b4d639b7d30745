"""Kernels of a module that was made from a candidate's text, by the names that the candidate's record has for them.

A name is the record's own word: it may be that of anything else that the module has.
"""

from __future__ import annotations

import types
from typing import Any

from triton.runtime.jit import JITFunction


def kernel_of(kernels: types.ModuleType, name: str) -> JITFunction[Any]:
    """A kernel of a module. Raises ValueError if the name is that of anything else."""
    kernel = vars(kernels).get(name)
    if not isinstance(kernel, JITFunction):
        raise ValueError(f"{name} is no kernel of the source")
    return kernel
