"""Finds out which tensors a device would not find in its memory, in a process where everything lies on the host.

A launch is an error there if it is given a tensor of the host. Those that a model makes without naming a device are
marked, and what torch computes from marked tensors alone; `.cuda()`, `.to(device)` and `device=` give copies that are
not. Inputs lie on the device, and so do parameters and buffers once the model is constructed. It runs in the
candidate's process and is as untrusted: it reports mistakes that a device would report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from weir.kernel_eval.worker.storage_marks import StorageMarks


class TensorOnHost(ValueError):
    """A tensor lies on the host where a device's is needed; for a launch, a device raises a ValueError, too."""


_JOINS = (torch.cat, torch.concat, torch.concatenate, torch.stack, torch.hstack, torch.vstack, torch.dstack)


class HostTensors(StorageMarks):
    """The storages that would lie on the host."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    @property
    def is_calling(self) -> bool:
        """Whether a function of torch runs, within which others are not seen."""
        return self._calls > 0

    def lies_on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor would lie on the host."""
        return bool(self) and self.holds(torch.Tensor.untyped_storage(tensor))

    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], target: str | None) -> Any:
        """Call a function of torch and mark what it makes; `target`: the device that the call names, cuda or cpu.

        Raises `TensorOnHost` if it joins tensors of the host with others.
        """
        if function in _JOINS and len(set(map(self.lies_on_host, _tensors((*args, *kwargs.values()))))) > 1:
            name = f"torch.{function.__name__}"
            raise TensorOnHost(f"{name} is given tensors of the host and of the device: make all with device=x.device")
        self._calls += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._calls -= 1
        made = _tensors((result,))
        if not made:
            return result
        read = _tensors((*args, *kwargs.values()))
        if target is not None and isinstance(result, torch.Tensor) and self._is_elsewhere(result, read, target):
            made = [result := result.clone()]
        known = {tensor.untyped_storage()._cdata for tensor in read}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in known]
        if target == "cpu" or (target is None and all(map(self.lies_on_host, _deciding(read)))):
            self.mark(new)
        else:
            self.unmark(new)
        return result

    def _is_elsewhere(self, result: torch.Tensor, read: list[torch.Tensor], target: str) -> bool:
        """Whether a result that shares memory with an argument would be a copy on another device."""
        shared = any(result.untyped_storage()._cdata == tensor.untyped_storage()._cdata for tensor in read)
        return shared and self.lies_on_host(result) != (target == "cpu")

    def note_unseen(self, made: Iterable[torch.Tensor]) -> None:
        """Mark what was made outside of any call of a function, as constructors like `torch.FloatTensor` do."""
        if not self.is_calling:
            self.mark(made)

    def check_launch(self, kernel: str, name: str, tensor: torch.Tensor) -> None:
        """Raises `TensorOnHost` if a kernel is given a tensor of the host; one without elements has no address."""
        if tensor.numel() and self.lies_on_host(tensor):
            raise TensorOnHost(
                f"{kernel} is given {name} in memory of the host, which a device cannot read: make the tensor with "
                "device=x.device or torch.empty_like(x), or move it with .to(x.device); keep what the model holds as "
                "parameters or by register_buffer"
            )


def _deciding(read: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that say where a result lies: those with dimensions, if there are any; numbers go anywhere."""
    return [tensor for tensor in read if tensor.dim()] or read


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found
