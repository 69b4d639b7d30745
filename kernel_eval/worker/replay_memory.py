"""Checks the loads and stores of kernels in a replay: every address must lie in a tensor of the launch.

Triton's interpreter itself accesses any address. Invariant: a kernel that has passed the check of `kernel_source.py`
can neither read nor change any other memory of the process. The stored bytes are recorded, to compute which part of an
answer the kernels made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter


class OutOfBounds(Exception):
    """A kernel touched an address outside the tensors that it was given."""


class Region:
    """A storage that kernels may access, with a mask of the bytes that they stored."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory  # (size_bytes,) uint8
        self.start = memory.data_ptr()
        self.end = self.start + memory.numel()
        self.stored = np.zeros(memory.numel(), dtype=bool)


class BoundedMemory:
    """Replaces the interpreter's module of loads and stores. Accesses raise `OutOfBounds` outside of the regions."""

    def __init__(self) -> None:
        self._native = interpreter._interpreter
        self._regions: list[Region] = []

    def install(self) -> None:
        """Replace it in this process, permanently."""
        interpreter._interpreter = self

    def allow(self, regions: list[Region]) -> None:
        """Set the regions of the next launch."""
        self._regions = regions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._find("loads", addresses, mask, np.dtype(dtype).itemsize)
        return self._native.load(addresses, mask, other, dtype)

    def store(self, addresses: Any, value: Any, mask: Any) -> Any:
        self._record("stores", addresses, mask, value.dtype.itemsize)
        return self._native.store(addresses, value, mask)

    def atomic_rmw(self, kind: Any, addresses: Any, value: Any, mask: Any, semantics: Any) -> Any:
        self._record("updates", addresses, mask, value.dtype.itemsize)
        return self._native.atomic_rmw(kind, addresses, value, mask, semantics)

    def atomic_cas(self, addresses: Any, compared: Any, value: Any, semantics: Any) -> Any:
        self._record("updates", addresses, np.ones_like(addresses, dtype=bool), value.dtype.itemsize)
        return self._native.atomic_cas(addresses, compared, value, semantics)

    def _record(self, verb: str, addresses: Any, mask: Any, size: int) -> None:
        for region, inside in self._find(verb, addresses, mask, size):
            offsets = (inside - np.uint64(region.start)).astype(np.int64)
            for byte in range(size):
                region.stored[offsets + byte] = True

    def _find(self, verb: str, addresses: Any, mask: Any, size: int) -> list[tuple[Region, Any]]:
        mask = np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(addresses))
        active = np.asarray(addresses, dtype=np.uint64)[mask]
        if active.size == 0:
            return []
        low, high = int(active.min()), int(active.max()) + size
        for region in self._regions:
            if region.start <= low and high <= region.end:
                return [(region, active)]
        touched, left = [], active
        for region in self._regions:
            inside = (left >= np.uint64(region.start)) & (left <= np.uint64(max(region.start, region.end - size)))
            if region.end - region.start >= size and inside.any():
                touched.append((region, left[inside]))
                left = left[~inside]
        if left.size:
            raise OutOfBounds(f"a kernel {verb} {left.size} of {active.size} elements outside the tensors it was given")
        return touched
