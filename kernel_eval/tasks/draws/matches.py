"""Integers that are equal to others, in one tensor and between several: of a wide range, few are by chance.

A task that compares tokens with tokens, or labels with labels, needs all of its function only where some match. Draws
use torch's generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weir.kernel_eval.tasks.draws.integer_draws import Integers, any_seen
from weir.kernel_eval.tasks.draws.places import seldom

_POOL = 8  # values, of which each is half as frequent as the one before
_OWN = 8  # one of so many keeps its own value, which matches hardly any
_ALIKE = (0.0, 0.5, 0.9, 1.0)  # of a row, the shares that are as in another tensor of the same shape
_LEAST_VALUES = 3
_AGAIN, _LEAST_ROWS = 4, 4  # one of so many rows is as another; of no fewer rows
_TRIED = 16  # values, of which one is taken that differs
_BESIDE, _DIFFERENCES = 3, (-1, 0, 1)  # one of so many values, each at least once; what it differs from another by
_SELDOM = 0.25  # pairs of a row that are equal


def matched(values: Sequence[torch.Tensor], known: Sequence[Integers]) -> list[torch.Tensor]:
    """Integers of few values, the same in all tensors that may hold them; rows of two of one shape are partly alike."""
    changed: list[torch.Tensor] = []
    pool = torch.zeros(0, dtype=torch.int64)
    for value, seen in zip(values, known, strict=True):
        if not may_match(value, seen):
            changed.append(value)
            continue
        low, high = int(seen.values[0]), int(seen.values[-1])
        fitting = pool[(pool >= low) & (pool <= high)]
        if not len(fitting):
            fitting = torch.unique(any_seen(_POOL, seen.values))
            pool = fitting = fitting[torch.randperm(len(fitting))]
        shares = 0.5 ** torch.arange(len(fitting), dtype=torch.float32)
        drawn = fitting[torch.multinomial(shares, value.numel(), replacement=True)].view(value.shape)
        is_whole = torch.zeros(value.shape, dtype=torch.bool)  # in a row that is all as in another tensor
        for other in changed:
            if other.shape == value.shape and not seen.sorted:
                of_row = torch.tensor(_ALIKE)[torch.randint(len(_ALIKE), (*value.shape[:-1], 1))]
                takes = torch.rand(value.shape) < of_row
                is_whole = takes & (of_row == 1)
                drawn = torch.where(takes, other.cpu().to(drawn), drawn)
                if drawn.dim() > 1 and bool(is_whole.any()):
                    chosen = is_whole.reshape(-1, value.shape[-1])[:, 0]
                    rows = drawn.reshape(-1, value.shape[-1])
                    rows[chosen] = _but_for_one(rows[chosen], rows)
                    drawn = rows.view(value.shape)
                break
        own = value.cpu().to(torch.int64)
        keeps = seen.fixed | ((torch.randint(_OWN, value.shape) == 0) & ~is_whole) if len(values) > 1 else seen.fixed
        drawn = torch.where(keeps, own, drawn)
        drawn = seen.in_order(drawn) if seen.sorted else _with_rows_again(drawn, seen.fixed)
        changed.append(drawn.to(value.dtype).to(value.device))
    return changed


def _with_rows_again(drawn: torch.Tensor, fixed: torch.Tensor) -> torch.Tensor:
    """Some rows are as others, all of them or but for one place; what is fixed stays."""
    if drawn.dim() < 2 or drawn.shape[-1] < 2 or drawn.numel() // drawn.shape[-1] < _LEAST_ROWS:
        return drawn
    rows = drawn.clone(memory_format=torch.contiguous_format).view(-1, drawn.shape[-1])
    order = torch.randperm(len(rows))
    count = max(1, len(rows) // _AGAIN)
    rows[order[:count]] = _but_for_one(rows[order[count : 2 * count]], rows)
    return torch.where(fixed, drawn, rows.view(drawn.shape))


def _but_for_one(rows: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """Every other row has another of some values at one place."""
    count = len(rows)
    places = seldom(count, rows.shape[1])[:count, None]
    others = among.flatten()[torch.randint(among.numel(), (count, _TRIED))]
    other = others.gather(1, (others != rows.gather(1, places)).int().argmax(1, keepdim=True))
    differs = (torch.arange(count) % 2 == int(torch.randint(2, ())))[:, None]
    return torch.where(differs, rows.scatter(1, places, other), rows)


def beside(value: torch.Tensor, other: torch.Tensor, seen: Integers) -> torch.Tensor:
    """Integers of which some are as those of another tensor of the same shape, or one less, or one more.

    None leaves the range of the task's own, which is `seen`.
    """
    if value.shape != other.shape or not may_match(value, seen) or seen.distinct or seen.sorted:
        return value
    flat = value.clone(memory_format=torch.contiguous_format).view(-1)
    wanted = other.reshape(-1).to(torch.int64)
    low, high = int(seen.values[0]) - _DIFFERENCES[0], int(seen.values[-1]) - _DIFFERENCES[-1]
    free = ((wanted >= low) & (wanted <= high) & ~seen.fixed.view(-1).to(value.device)).nonzero()[:, 0]
    chosen = free[torch.randperm(len(free)).to(free.device)][: max(len(_DIFFERENCES), len(flat) // _BESIDE)]
    differences = torch.tensor(_DIFFERENCES)[torch.arange(len(chosen)) % len(_DIFFERENCES)]
    flat[chosen] = (wanted[chosen] + differences.to(value.device)).to(value.dtype)
    return flat.view(value.shape)


def may_match(value: torch.Tensor, seen: Integers) -> bool:
    """Whether integers may be equal to others, by what is known of the task's own."""
    is_distinct = seen.distinct and not _differ_by_chance(value, seen)
    keeps = seen.sums_are_fixed or is_distinct or seen.symmetric or bool(seen.fixed.all())
    may_change = not keeps and value.shape == seen.fixed.shape
    return may_change and value.dtype is not torch.bool and len(seen.values) >= _LEAST_VALUES


def _differ_by_chance(value: torch.Tensor, seen: Integers) -> bool:
    """Whether values of a range as wide seldom repeat in a row, as a few of many tokens do not."""
    width = value.shape[-1]
    return width * (width - 1) / 2 < _SELDOM * (int(seen.values[-1]) - int(seen.values[0]) + 1)
