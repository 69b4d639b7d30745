"""Nearly all rows that go to one place: a kernel may have room there for as many rows as usual draws send.

Places are integers of the task, or follow from floats (the largest score of a row names its expert). Draws use torch's
generator.
"""

from __future__ import annotations

import torch

from weir.kernel_eval.tasks.draws.integer_draws import Integers

_ELSEWHERE = 32  # one of so many rows at most, and one at least, goes where it went
_LEAST = 8  # rows
_LEAST_PLACES = 3
_TIMES = 0.75, 0.5  # a row that others are like; so many times at least, and as much more at most


def with_like_rows(value: torch.Tensor) -> torch.Tensor:
    """Rows along the last dimension that are one of them, each times a number of its own, but for a few."""
    if value.dim() < 2 or value.shape[-1] < 2 or value.numel() // value.shape[-1] < _LEAST:
        return value
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    order = torch.randperm(len(rows)).to(value.device)
    chosen = order[max(1, len(rows) // _ELSEWHERE) :]
    times = _TIMES[0] + _TIMES[1] * torch.rand(len(chosen), 1)
    rows[chosen] = rows[chosen[0]] * times.to(rows)
    return rows.view(value.shape)


def at_one_place(declared: torch.Tensor, seen: Integers) -> torch.Tensor:
    """Integers that are one of their values, but for a few, where the task's own draws allow that."""
    keeps = seen.sums_are_fixed or seen.distinct or seen.symmetric or len(seen.values) < _LEAST_PLACES
    if keeps or declared.numel() < _LEAST or declared.shape != seen.fixed.shape or bool(seen.fixed.all()):
        return declared
    values = declared.reshape(-1)
    place = values[int(torch.randint(len(values), ()))]
    order = torch.randperm(len(values)).to(values.device)
    changed = torch.full_like(values, int(place))
    others = order[: max(1, len(values) // _ELSEWHERE)]
    changed[others] = values[others]
    fixed = seen.fixed.clone()
    if seen.sorted:
        fixed[..., 1:-1] = False  # which follow from the order
    changed = torch.where(fixed.to(declared.device), declared, changed.view(declared.shape))
    return seen.in_order(changed)
