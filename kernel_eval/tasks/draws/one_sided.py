"""Inputs of products whose results are all of one sign: what follows a maximum of them is asked for the other one, too.

The largest of many products, or the logarithm of the sum of their exponentials, is above zero for any usual input, so
that a `relu` after it, or a `gelu`, could be left out. Draws use torch's generator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

_ROWS = 6  # of one sign, if there are so many times as many
_SHARE = 4
_RIDGE = 1e-3  # of the mean square of a row of weights: small changes of inputs matter little
_LEAST = 0.3  # of the mean of the results, to count as of one sign
_MOST = 1 << 29  # multiplications to find them; larger weights have none
_MARGIN = 0.5, 6.0  # by which a sum of exponentials is below one, and a maximum above zero


def one_sided(
    value: torch.Tensor, other: torch.Tensor, free: torch.Tensor | None = None
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The change that makes products of a tensor and another one of one sign; None where no sizes or values fit.

    `other`: (N, K) or (K, N), where K is the last size of `value`, or the filters of a convolution of it. `free`: of
    each row of `value`, whether it may change; None: all may.
    """
    if other is value or value.dim() < 2 or not torch.is_floating_point(other):
        return None
    if other.dim() == 2:
        fitting = [weight for weight in (other, other.mT) if weight.shape[1] == value.shape[-1]]
        rows = [(_direction(weight), len(weight)) for weight in fitting]
        found = [(direction, num_results) for direction, num_results in rows if direction is not None]
        return functools.partial(_with_rows, directions=found, free=free) if found else None
    if value.dim() != other.dim() or value.shape[1] != other.shape[1] or len(value) < _SHARE:
        return None
    if any(one < two for one, two in zip(value.shape[2:], other.shape[2:], strict=True)):
        return None
    direction = _direction(other.flatten(1))
    return None if direction is None else functools.partial(_with_patch, direction=direction.view(other.shape[1:]))


def _direction(weight: torch.Tensor) -> torch.Tensor | None:
    """What all rows of a weight (N, K) give about one for, (K,); None if there is none."""
    if not 1 < len(weight) <= weight.shape[1] or len(weight) * weight.numel() > _MOST:
        return None
    rows = weight.detach().double()
    gram = rows @ rows.mT
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    solved, failed = torch.linalg.solve_ex(gram, torch.ones(len(rows), 1, dtype=torch.float64, device=rows.device))
    direction = (rows.mT @ solved)[:, 0]
    results = rows @ direction
    fits = not bool(failed) and float(results.min()) > _LEAST * float(results.mean()) > 0
    return direction / results.mean() if fits and bool(torch.isfinite(direction).all()) else None


def _with_rows(
    value: torch.Tensor, directions: Sequence[tuple[torch.Tensor, int]], free: torch.Tensor | None
) -> torch.Tensor:
    """Some rows give results of one sign: most so far below zero that their exponentials sum up to less than one."""
    changed = value.clone(memory_format=torch.contiguous_format)
    rows = changed.view(-1, value.shape[-1])
    count = min(_ROWS, len(rows) // (_SHARE * len(directions)))
    order = torch.randperm(len(rows)).to(value.device)
    order = order if free is None else order[free[order]]
    margins = _MARGIN[0] + (_MARGIN[1] - _MARGIN[0]) * torch.arange(count) / max(1, count - 1)
    for number, (direction, num_results) in enumerate(directions):
        chosen = order[number * count : (number + 1) * count]
        below = -(margins + math.log(num_results) / _LEAST)
        sizes = torch.where(torch.arange(count) % 3 == 2, margins, below)
        rows[chosen] = (sizes[: len(chosen)].to(direction)[:, None] * direction).to(value)
    return changed


def _with_patch(value: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """One image has a patch in its first corner, and one in its last, that all filters answer with one sign.

    It is the one with the least values: beside far larger ones the answer to a patch would not count.
    """
    changed = value.clone(memory_format=torch.contiguous_format)
    image = changed[int(value.flatten(1).abs().amax(1).argmin())]
    sizes = direction.shape[1:]
    sign = 1 - 2 * int(torch.randint(2, ()))
    image[(slice(None), *(slice(-n, None) for n in sizes))] = (-sign * _MARGIN[1] * direction).to(value)
    image[(slice(None), *(slice(n) for n in sizes))] = (sign * _MARGIN[1] * direction).to(value)
    return changed
