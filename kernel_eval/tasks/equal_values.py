"""Equal values and order in inputs: values that repeat in a tensor, that two tensors share, and rows that are sorted.

Random numbers do not repeat, so that an order of distinct values would do for any. Draws use torch's generator.
"""

from __future__ import annotations

import torch

from weir.kernel_eval.tasks.places import some

_SHARE = 8  # one of so many values is taken from another place
_LEAST_SORTED = 8  # values in a row, which are in order by chance once in 40,320


def with_repeats(value: torch.Tensor) -> torch.Tensor:
    """Some values again, at another place along each dimension."""
    for dimension, size in enumerate(value.shape):
        if size > 1:
            moved = value.roll(int(torch.randint(1, size, ())), dimension)
            value = torch.where(some(value, _SHARE), moved, value)
    return value


def with_values_of(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Some values of another tensor of the same shape, at their places."""
    return torch.where(some(value, _SHARE), other.to(value.dtype), value)


def is_sorted(value: torch.Tensor) -> bool:
    """Whether all rows are in order and hold several values, as the bounds of intervals do."""
    if value.dim() == 0 or value.shape[-1] < _LEAST_SORTED or value.is_complex() or value.dtype is torch.bool:
        return False
    in_order = bool((value[..., 1:] >= value[..., :-1]).all())
    return in_order and bool((value[..., 0] < value[..., -1]).all())


def in_order_of(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor with its rows in order, if those of `like` are."""
    return value.sort(-1).values if is_sorted(like) else value
