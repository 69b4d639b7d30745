"""Which tensors tasks may take and give: dense, of dtypes that can be compared, and not too large. Pure."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference

_UNJUDGEABLE = (torch.float8_e4m3fn, torch.float8_e5m2)
_MAX_TENSOR_BYTES = 4 << 30  # as compared: an expanded tensor takes no memory before


def check_supported(values: list[Any]) -> None:
    """Look through arguments or answers. Raises `InvalidReference` or `UnsupportedReference` for what is not."""
    for value in values:
        if isinstance(value, list | tuple):
            check_supported(list(value))
        elif isinstance(value, torch.Tensor):
            _check_tensor(value)


def _check_tensor(tensor: torch.Tensor) -> None:
    if tensor.dtype in _UNJUDGEABLE:
        raise UnsupportedReference(
            f"the task uses {tensor.dtype}, which tasks may not take or give; kernels may use it within"
        )
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise InvalidReference(f"the task takes or gives a {tensor.layout} tensor on {tensor.device}, not a dense one")
    if tensor.numel() * tensor.element_size() > _MAX_TENSOR_BYTES:
        raise InvalidReference(f"the task takes or gives a tensor of {list(tensor.shape)}: make its sizes smaller")


def function_of(module: types.ModuleType, name: str) -> Callable[..., Any]:
    """What a task defines by a name. Raises `InvalidReference` where it is nothing to call."""
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidReference(f"the task defines no {name}")
    return function  # type: ignore[no-any-return]
