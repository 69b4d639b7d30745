"""Rows of probabilities that usual draws do not have: all of it at one place, the same everywhere, as in another input.

Draws use torch's generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weir.kernel_eval.tasks.draws.places import seldom

_SHARE = 8  # one of so many rows is of each kind
_LEAST_ROWS = 2
_LEFT = 0.02  # of what was there, in a row that is nearly sure


def with_sure_rows(value: torch.Tensor) -> torch.Tensor:
    """Some rows with all of it at one place, whose entropy is zero, some with nearly all, some the same everywhere."""
    if value.dim() < 2 or value.numel() // value.shape[-1] < _LEAST_ROWS:
        return value
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    count = max(1, len(rows) // _SHARE)
    order = torch.randperm(len(rows)).to(value.device)
    sure, even, nearly = (order[number * count : (number + 1) * count] for number in range(3))
    for chosen, left in ((sure, 0.0), (nearly, _LEFT)):
        places = seldom(len(chosen), value.shape[-1])[: len(chosen), None].to(value.device)
        one = torch.zeros_like(rows[chosen]).scatter_(1, places, 1.0)
        rows[chosen] = rows[chosen] * left + one * (1 - left)
    rows[even] = 1.0 / value.shape[-1]
    return rows.view(value.shape)


def with_equal_rows(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of one shape in which some rows are those of the first."""
    first = values[0]
    width = first.shape[-1] if first.dim() > 1 else first.numel()
    chosen = torch.randperm(first.numel() // width)[: max(1, first.numel() // width // _SHARE)].to(first.device)
    changed = [first]
    for value in values[1:]:
        rows = value.clone(memory_format=torch.contiguous_format).view(-1, width)
        rows[chosen] = first.reshape(-1, width)[chosen]
        changed.append(rows.view(value.shape))
    return changed
