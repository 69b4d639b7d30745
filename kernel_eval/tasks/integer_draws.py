"""Draws the values of a task's integers and booleans anew, from what several draws of its own show about them.

A drawn tensor never leaves the range of the task's own draws, and keeps what they have in common: positions that always
hold one value, an order along rows, values that do not repeat, sums of rows, symmetry, a common divisor, and a small
set of values. Draws use torch's generator.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

NUM_DRAWS = 4
_FEW_VALUES = 16
_MAX_RANGE = 2**62
_MAX_GAP = 0.25  # of the range; beyond it the values are not of one range (labels, and a number for "none")


class Integers(NamedTuple):
    """What the task's own draws of one tensor show; `values` are all that occurred, sorted; (num_values,)."""

    values: torch.Tensor
    fixed: torch.Tensor  # positions with the same value in each draw; shape of the tensor
    sorted: bool
    distinct: bool  # along rows
    sums_are_fixed: bool  # of rows
    symmetric: bool


def observed(draws: list[torch.Tensor]) -> Integers:
    """What draws of one tensor have in common; all of one shape and dtype."""
    wide = [draw.cpu().to(torch.int64) for draw in draws]
    first, rest = wide[0], wide[1:]
    fixed = torch.ones_like(first, dtype=torch.bool)
    for other in rest:
        fixed &= other == first
    rows = [draw.flatten(0, -2) if draw.dim() > 1 else draw.reshape(1, -1) for draw in wide]
    ordered = [row.sort(-1).values for row in rows]
    long = first.dim() > 0 and first.shape[-1] > 2
    sums = [row.sum(-1) for row in rows]
    return Integers(
        torch.unique(torch.cat([draw.reshape(-1) for draw in wide])),
        fixed,
        long and all(torch.equal(*pair) for pair in zip(rows, ordered, strict=True)),
        long and all(bool((row[:, 1:] > row[:, :-1]).all()) for row in ordered),
        long and all(torch.equal(sums[0], other) for other in sums[1:]),
        all(_is_symmetric(draw) for draw in wide),
    )


def redrawn_integers(declared: torch.Tensor, seen: Integers) -> torch.Tensor:
    """New values for a tensor of integers or booleans; shape and dtype of `declared`."""
    if declared.numel() == 0 or bool(seen.fixed.all()):
        return declared
    wide = declared.cpu().to(torch.int64)
    only_order = seen.sums_are_fixed or seen.distinct
    if only_order and seen.symmetric:
        return declared
    drawn = _shuffled(wide) if only_order else _from_slices(wide, seen.values)
    if seen.symmetric:
        drawn = drawn.tril() + drawn.tril(-1).mT
    if seen.sorted:
        drawn = drawn.sort(-1).values
    if not only_order:
        drawn = torch.where(seen.fixed, wide, drawn)
    made = torch.empty_strided(declared.shape, declared.stride(), dtype=declared.dtype, device=declared.device)
    return made.copy_(drawn)


def _from_slices(declared: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Slices of the declared values, of any values, of few values, and of the least and the largest."""
    count = declared.numel()
    drawn = _drawn(count, values)
    few = drawn[torch.randint(count, (3,))]
    ends = values[[0, -1]]
    share_of_largest = torch.rand(())
    kinds = [
        declared.reshape(-1),
        drawn,
        few[torch.randint(len(few), (count,))],
        ends[(torch.rand(count) < share_of_largest).long()],
    ]
    num_slices = declared.shape[0] if declared.dim() > 1 else 2 * len(kinds)
    length = math.ceil(count / max(len(kinds), num_slices))
    which = (torch.arange(count) // length + torch.randint(len(kinds), ())) % len(kinds)
    return torch.stack(kinds).gather(0, which[None])[0].view(declared.shape)


def _drawn(count: int, values: torch.Tensor) -> torch.Tensor:
    """Any of the values that occurred, or of their range if they are of one; shape (count,)."""
    least, largest = int(values[0]), int(values[-1])
    gaps = torch.unique(values.diff())
    if len(values) <= _FEW_VALUES or largest - least > _MAX_RANGE or int(gaps[-1]) > _MAX_GAP * (largest - least):
        return values[torch.randint(len(values), (count,))]
    step = math.gcd(*gaps.tolist())
    return least + step * torch.randint((largest - least) // step + 1, (count,))


def _shuffled(values: torch.Tensor) -> torch.Tensor:
    """Each row in another order."""
    return values.gather(-1, torch.rand(values.shape).argsort(-1))


def _is_symmetric(values: torch.Tensor) -> bool:
    return values.dim() >= 2 and values.shape[-1] == values.shape[-2] > 1 and torch.equal(values, values.mT)
