"""Rows of one group that are far from all others: an index, among the integers of a task, names the group of each row.

Groups are rarely far from zero as a whole by chance, so that a maximum of each could start at zero, or at -1000. Draws
use torch's generator.
"""

from __future__ import annotations

import torch

_FAR = 1e5, 20.0, 20.0  # from zero: beyond what a kernel may start a maximum at, and where exponentials are small
_SIGNS = -1, -1, 1  # of the groups that are so far
_HALF_RANGE = 16  # of what a dtype holds, a group is no farther than one of so many
_LEAST_GROUPS = 4  # of fewer only one is far from zero


def names_groups(index: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether there is an integer for each row of a tensor of floats, or for each of its elements."""
    fits = 0 < index.dim() <= value.dim() and index.shape == value.shape[: index.dim()] and index.numel() > 1
    return fits and index.dtype is not torch.bool


def with_far_groups(value: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Some groups of rows are far below zero as a whole, or above it. `index`: as `names_groups` asks."""
    present = torch.unique(index)
    chosen = present[torch.randperm(len(present)).to(present.device)]
    count = len(_SIGNS) if len(present) >= _LEAST_GROUPS else 1
    most = torch.finfo(value.dtype).max / _HALF_RANGE
    changed = value.clone(memory_format=torch.contiguous_format)
    for group, far, sign in zip(chosen[:count], _FAR, _SIGNS, strict=False):
        rows = changed[index == group]
        changed[index == group] = sign * min(far, most) + rows
    return changed
