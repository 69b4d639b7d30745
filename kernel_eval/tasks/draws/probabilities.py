"""Rows of probabilities that usual draws do not have: all of it at one place, the same everywhere, as in another input.

Draws use torch's generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SHARE = 8  # one of so many rows is of each kind
_LEAST_ROWS = 2


def with_sure_rows(value: torch.Tensor) -> torch.Tensor:
    """Some rows with all of it at one place, whose entropy is zero, and some with the same everywhere."""
    if value.dim() < 2 or value.numel() // value.shape[-1] < _LEAST_ROWS:
        return value
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    count = max(1, len(rows) // _SHARE)
    order = torch.randperm(len(rows)).to(value.device)
    sure, even = order[:count], order[count : 2 * count]
    places = torch.randint(value.shape[-1], (len(sure), 1), device=value.device)
    rows[sure] = torch.zeros_like(rows[sure]).scatter_(1, places, 1.0)
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
