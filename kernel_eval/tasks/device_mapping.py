"""Runs sources that name the device "cuda" on the CPU: a torch function mode that replaces the device in every call.

Used for candidates and for the task's own code, because both are usually written for a GPU. Under it, `x.is_cuda` is
true and `x.device` is a CUDA device, since candidates assert that. `stub_driver.py` replaces `torch.cuda` in a worker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

_is_cuda = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_device_of = torch.Tensor.device.__get__
_CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")


class CpuForCuda(TorchFunctionMode):
    """While the mode is active, "cuda" means "cpu"."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func == _is_cuda:  # == and not `is`: every lookup makes a new slot wrapper
            return not self.lies_on_host(args[0])
        if func == _device_of:
            return _CPU if self.lies_on_host(args[0]) else _CUDA
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return self.call(torch.Tensor.to, (args[0], "cpu"), {}, "cuda")
        if func is torch.Tensor.cpu:
            return self.call(func, args, kwargs, "cpu")
        target = _device_type(kwargs.get("device"))
        if target is None and _device.CURRENT_DEVICE is not None and func in _device._device_constructors():
            target = _device.CURRENT_DEVICE.type  # of set_default_device or `with torch.device`, whose mode comes later
        if target == "cuda":
            kwargs = {**kwargs, "device": "cpu"}
        if func is torch.Tensor.to and len(args) > 1:
            if isinstance(args[1], torch.Tensor):
                target = "cpu" if self.lies_on_host(args[1]) else "cuda"
            else:
                target = _device_type(args[1]) or target
                args = (args[0], "cpu", *args[2:]) if _device_type(args[1]) else args
        return self.call(func, args, kwargs, target)

    def lies_on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor would lie on the host where there is a device."""
        return False

    def call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], target: str | None) -> Any:
        """Make the call, with its devices replaced; `target`: the type of the device that it names, cuda or cpu."""
        return func(*args, **kwargs)


def _device_type(value: Any) -> str | None:
    """The type of a device, if the value names one. Raises RuntimeError for another GPU than the first."""
    if type(value) is int:
        kind, number = "cuda", str(value)
    elif isinstance(value, torch.device | str):
        kind, _, number = str(value).partition(":")
    else:
        return None
    if kind == "cuda" and number not in ("", "0"):
        raise RuntimeError(f"invalid device ordinal: cuda:{number} is named, and there is one GPU, cuda:0")
    return kind


def moved(value: Any, device: str) -> Any:
    """A value with its tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value


def is_accepted_by_a_cpu(model: torch.nn.Module, inputs: list[Any]) -> bool:
    """Whether the model computes something of these inputs on a CPU: a GPU divides by zero without an error."""
    if not any(isinstance(value, torch.Tensor) and _is_cuda(value) for value in inputs):
        return True
    try:
        with torch.device("cpu"), torch.no_grad():
            copy.deepcopy(model).cpu()(*moved(inputs, "cpu"))
    except Exception:  # of a task's own code; the draw is left out
        return False
    return True


def take_values(model: torch.nn.Module, other: torch.nn.Module) -> None:
    """Give a model the parameters and buffers of another one of its form."""
    values = dict([*other.named_parameters(), *other.named_buffers()])
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in values and values[name].shape == tensor.shape:
            tensor.data.copy_(values[name])
