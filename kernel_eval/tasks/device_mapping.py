"""Runs sources that name the device "cuda" on the CPU: a torch function mode that replaces the device in every call.

Used for candidates and for the task's own code, because both are usually written for a GPU. Under it, `x.is_cuda` is
true and `x.device` is a CUDA device, since candidates assert that. `stub_driver.py` replaces `torch.cuda` in a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_is_cuda = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_device = torch.Tensor.device.__get__
_CUDA = torch.device("cuda", 0)


def _is_gpu(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


class CpuForCuda(TorchFunctionMode):
    """While the mode is active, "cuda" means "cpu"."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func == _is_cuda:  # == and not `is`: every lookup makes a new slot wrapper
            return True
        if func == _device:
            return _CUDA
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = kwargs or {}
        if "device" in kwargs and (_is_gpu(kwargs["device"]) or isinstance(kwargs["device"], int)):
            kwargs = {**kwargs, "device": "cpu"}
        if func is torch.Tensor.to and len(args) > 1 and (_is_gpu(args[1]) or type(args[1]) is int):
            args = (args[0], "cpu", *args[2:])
        return self.call(func, args, kwargs)

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call, with its devices replaced."""
        return func(*args, **kwargs)
