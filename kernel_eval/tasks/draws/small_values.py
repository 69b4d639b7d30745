"""Values so small that what a task adds to a divisor, or bounds it by, counts: of the size of that number, or its root.

A mixed draw has small rows in one input at a time, beside which a norm of a sum (a residual, a bias) is not small. Here
all that may be added up is small together. Draws use torch's generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_NEAR, _BELOW = (-0.7, 0.3), (-3.0, -1.0)  # powers of ten, times a root, and times a number itself
_LEAST = 16.0  # times the least value of a dtype that has all its digits


def scales(numbers: Sequence[float], count: int) -> torch.Tensor:
    """Scales at which the numbers count: of a number, then of its root, of each of them in turns; shape (count,).

    A number counts beside a norm that is smaller, and beside squares, however many are added up, that are near it.
    """
    some = torch.tensor(numbers)[torch.randperm(len(numbers))].repeat_interleave(2)
    of = some[torch.arange(count) % len(some)]
    is_root = torch.arange(count) % 2 == 1
    return torch.where(is_root, of.sqrt() * _digits(count, _NEAR), of * _digits(count, _BELOW))


def least_scale(numbers: Sequence[float]) -> torch.Tensor:
    """The scale of what is added to all rows, which must not be larger than any of them; shape (1,)."""
    return min(numbers) * _digits(1, _BELOW)


def _digits(count: int, between: tuple[float, float]) -> torch.Tensor:
    least, most = between
    return 10.0 ** (least + (most - least) * torch.rand(count))


def made_small(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A tensor's own values, made so small; those of half precision only as small as it has digits for.

    Infinities stay.
    """
    finite = value.double()[torch.isfinite(value)]
    size = float(finite.square().mean().sqrt()) if finite.any() else 1.0
    least = _LEAST * torch.finfo(value.dtype).tiny
    return (value.double() / size * scale.to(value.device).clamp(min=least)).to(value.dtype)
