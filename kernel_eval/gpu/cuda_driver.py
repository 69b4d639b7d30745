"""Calls of CUDA's driver API by name. Structures and numbers are those of cuda.h."""

from __future__ import annotations

import ctypes
import functools
from typing import Any


class CudaDriverError(RuntimeError):
    """A driver function failed; `error_code` is its CUresult."""

    def __init__(self, function: str, error_code: int) -> None:
        super().__init__(f"{function} returned {error_code}, expected 0; see CUresult in cuda.h")
        self.error_code = error_code


def call(function: str, *arguments: Any) -> None:
    """Call a driver function. Raises `CudaDriverError` if it fails."""
    status = getattr(_driver(), function)(*arguments)
    if status != 0:
        raise CudaDriverError(function, status)


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
