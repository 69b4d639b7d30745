"""Counts the bytes of tensors that live at once, operation by operation: torch keeps no such count on a CPU.

A storage counts from the operation that returned it until it is freed or, as FSDP does, resized. Memory that an
operation takes and gives back within itself is not seen. Nothing is timed or sampled.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Within the block `peak` is the most bytes that tensors which were seen held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._seen: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and value.device.type != "meta":
                own: torch.Tensor = getattr(value, "_local_tensor", value)  # a sharded tensor has its rows' memory
                storage = own.untyped_storage()
                self._seen.setdefault(storage._cdata, weakref.ref(storage))
        self.peak = max(self.peak, self.live)
        return result

    @property
    def live(self) -> int:
        """Bytes that live now."""
        total = 0
        for key, reference in list(self._seen.items()):
            storage = reference()
            if storage is None:
                del self._seen[key]
            else:
                total += storage.nbytes()
        return total
