"""Copies of arguments in float64, as they are or off by one rounding: no kernel avoids what that changes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

_GOLDEN = 0.6180339887498949  # its multiples are spread evenly between whole numbers


def in_float64(value: Any) -> Any:
    """A copy of an argument with its floating-point tensors in float64; lists and tuples are followed."""
    if isinstance(value, list | tuple):
        return type(value)(in_float64(item) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(torch.float64 if value.is_floating_point() else value.dtype, copy=True)


def nudged(value: Any, times: float = 1.0, exact: Sequence[float] = ()) -> Any:
    """A copy of an argument in float64, off by at most half a rounding of float32, or of float64 where it is of that.

    `times`: by how many times as much. `exact`: values that stay, which a task asks for (`x == 7`).
    """
    if isinstance(value, list | tuple):
        return type(value)(nudged(item, times, exact) for item in value)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return in_float64(value)
    own = torch.float64 if value.dtype is torch.float64 else torch.float32
    made = torch.arange(value.numel(), dtype=torch.float64, device=value.device).view(value.shape)
    made.mul_(_GOLDEN).remainder_(1).sub_(0.5).mul_(times * torch.finfo(own).eps).add_(1)
    made.mul_(value)
    kept = (value == number for number in exact)
    return functools.reduce(lambda changed, stays: torch.where(stays, value.double(), changed), kept, made)
