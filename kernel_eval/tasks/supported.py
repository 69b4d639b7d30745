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
        elif isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values()):
            raise InvalidReference("the task takes tensors in a dict: give them as arguments, or in a list or a tuple")


def _check_tensor(tensor: torch.Tensor) -> None:
    if tensor.dtype in _UNJUDGEABLE:
        raise UnsupportedReference(
            f"the task uses {tensor.dtype}, which tasks may not take or give; kernels may use it within"
        )
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise InvalidReference(f"the task takes or gives a {tensor.layout} tensor on {tensor.device}, not a dense one")
    if tensor.numel() * tensor.element_size() > _MAX_TENSOR_BYTES:
        raise InvalidReference(f"the task takes or gives a tensor of {list(tensor.shape)}: make its sizes smaller")


def as_plain(value: Any) -> Any:
    """An argument whose tensors need no gradient, and whose elements have memory of their own (not so of `expand`)."""
    if isinstance(value, list | tuple):
        return type(value)(as_plain(item) for item in value)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    plain = value.detach()
    span = 1 + sum((size - 1) * step for size, step in zip(plain.shape, plain.stride(), strict=True))
    return plain.clone(memory_format=torch.contiguous_format) if span < plain.numel() else plain


def function_of(module: types.ModuleType, name: str) -> Callable[..., Any]:
    """What a task defines by a name. Raises `InvalidReference` where it is nothing to call."""
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidReference(f"the task defines no {name}")
    return function  # type: ignore[no-any-return]
