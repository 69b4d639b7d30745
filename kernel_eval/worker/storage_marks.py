"""A set of storages of torch, which forgets those that are freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_weak: Callable[[torch.UntypedStorage], Any] = StorageWeakRef


class StorageMarks:
    """The storages that were marked. Views of a tensor share its mark."""

    def __init__(self) -> None:
        self._marked: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._marked)

    def mark(self, tensors: Iterable[torch.Tensor]) -> None:
        """Mark the storages of these tensors."""
        for tensor in tensors:
            storage = torch.Tensor.untyped_storage(tensor)
            self._marked[storage._cdata] = _weak(storage)

    def unmark(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remove the marks of these tensors' storages."""
        for tensor in tensors:
            self._marked.pop(torch.Tensor.untyped_storage(tensor)._cdata, None)

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage is marked."""
        reference = self._marked.get(storage._cdata)
        return reference is not None and not reference.expired()
