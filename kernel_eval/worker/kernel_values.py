"""Finds out when a model reads on the host what its kernels would have computed, in a process where no kernel runs.

Such a value (`out.item()`, `bool(flag)`, `out.tolist()`) does not exist there, and a record that went on with zeros in
its place would be of another call. The tensors that a launch is given are marked, but for inputs and the model's state,
which a kernel mostly reads; and so is what torch makes of them.
It runs in the candidate's process and is as untrusted: a candidate that hides a read gets a record that gives wrong
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weir.kernel_eval.tasks.device_mapping import CpuForCuda
from weir.kernel_eval.worker.host_tensors import HostTensors
from weir.kernel_eval.worker.storage_marks import StorageMarks

_ASKS = frozenset(
    {
        *("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "nonzero_static", "masked_select"),
        *("unique_dim", "_unique", "_unique2", "unique_consecutive", "bincount", "repeat_interleave"),
    }
)
_HANDED_OUT = frozenset(
    getattr(torch.Tensor, name) for name in ("tolist", "numpy", "__array__", "__dlpack__", "__reversed__")
)


class NeedsKernelResult(Exception):
    """The model reads a kernel's result on the host."""


class KernelValues(StorageMarks):
    """The storages that hold results of kernels."""

    def follow(self, operator: Any, read: list[torch.Tensor]) -> bool:
        """Whether an operator of torch reads results of kernels. Raises `NeedsKernelResult` if they become a value."""
        if not self or not any(self.holds(tensor.untyped_storage()) for tensor in read):
            return False
        name = operator.__name__.partition(".")[0]
        if name in _ASKS or (name in ("index", "index_put_", "index_put") and _by_mask(self, read[1:])):
            raise NeedsKernelResult(_message(f"torch's {name}"))
        return True


class HostReads(CpuForCuda):
    """While the mode is active, "cuda" means "cpu", and results of kernels are not handed out as Python's values."""

    def __init__(self, values: KernelValues, hosts: HostTensors) -> None:
        super().__init__()
        self._values = values
        self._hosts = hosts

    def lies_on_host(self, tensor: torch.Tensor) -> bool:
        """As in `CpuForCuda`."""
        return self._hosts.lies_on_host(tensor)

    def call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], target: str | None) -> Any:
        """As in `CpuForCuda`. Raises `NeedsKernelResult`."""
        if func in _HANDED_OUT and self._values.holds(torch.Tensor.untyped_storage(args[0])):
            raise NeedsKernelResult(_message(f"Tensor.{func.__name__}"))
        return self._hosts.call(func, args, kwargs, target)


def _by_mask(values: KernelValues, indices: list[torch.Tensor]) -> bool:
    return any(index.dtype is torch.bool and values.holds(index.untyped_storage()) for index in indices)


def _message(reader: str) -> str:
    return (
        f"{reader} reads on the host what a kernel computed. Without a GPU the model's own code runs once per shape, "
        "before any kernel does: keep such values on the device (pass the tensor to the next kernel)"
    )
