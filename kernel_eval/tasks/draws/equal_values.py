"""Equal values and order in inputs: values that repeat in a tensor, that two share, rows of one value, sorted rows.

Random numbers do not repeat, so that an order of distinct values would do for any. Draws use torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from weir.kernel_eval.tasks.draws.places import distinct, extremes, seldom, some

_SHARE = 8  # one of so many values is taken from another place
_EVEN_SHARE = 16  # one of so many rows holds one value everywhere
_PARTS = 4  # of a row, in each of which a lone value lies somewhere
_FEWER = 64  # one of so many rows, which a judge lets a task leave open
_LEAST_EXTREMES = 4  # values, of which two are the largest and two the least
_FEW_VALUES = 16  # or fewer: a mask
_LEAST_SORTED, _LEAST_ORDERS = 3, 100  # values in a row; orders that all rows could have, of which one is by chance


def with_repeats(value: torch.Tensor) -> torch.Tensor:
    """Some values again, at another place along each dimension."""
    for dimension, size in enumerate(value.shape):
        if size > 1:
            moved = value.roll(int(torch.randint(1, size, ())), dimension)
            value = torch.where(some(value, _SHARE), moved, value)
    return value


def with_values_of(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Some values of another tensor: at their places if it is of the same shape, otherwise anywhere.

    The largest and the least value stay, unless nothing else would change.
    """
    if other.shape != value.shape:
        other = other.reshape(-1)[torch.randint(other.numel(), value.shape, device=value.device)]
    changed = torch.where(some(value, _SHARE), other.to(value.dtype), value).contiguous()
    at = extremes(value).to(value.device)
    before = changed.view(-1)[at]
    changed.view(-1)[at] = value.reshape(-1)[at]
    if torch.equal(changed, value):
        changed.view(-1)[at] = before
    return changed


def with_even_rows(value: torch.Tensor, points: Sequence[float]) -> torch.Tensor:
    """Some rows hold one of the points everywhere: a mask that hides all of a row, or nothing. The others stay."""
    if value.dim() < 2 or value.shape[-1] < 2 or value.numel() // value.shape[-1] < 2 * len(points):
        return value
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    each = max(1, len(rows) // (_EVEN_SHARE * len(points)))
    at = distinct(each * len(points), len(rows))[torch.randperm(each * len(points))].to(value.device)
    for number, point in enumerate(points):
        rows[at[number * each : (number + 1) * each]] = point
    return rows.view(value.shape)


def with_lone_values(value: torch.Tensor, common: float, lone: float, *, of_lone: bool = False) -> torch.Tensor:
    """Some rows hold one value everywhere but at one place, which lies in another part of each of them.

    Rows that hold one value everywhere, or but at one place, stay; with `of_lone` only those that hold the common one.
    """
    if value.dim() < 2 or value.shape[-1] < 2 or value.numel() // value.shape[-1] < 2:
        return value
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    count = min(max(1, len(rows) // _EVEN_SHARE, min(_PARTS, len(rows) // _PARTS)), value.shape[-1])
    num_others = (rows != (common if of_lone else rows[:, :1])).sum(-1)
    others = ((num_others > 1) & (of_lone | (num_others < rows.shape[1] - 1))).nonzero().squeeze(1)
    at = others[torch.randperm(len(others))[:count].to(value.device)]
    rows[at] = common
    places = torch.cat([seldom(1, value.shape[-1]), distinct(count, value.shape[-1])[torch.randperm(count)]])
    places = places if count < _PARTS else torch.cat([seldom(2, value.shape[-1]), places[1:]])
    rows[at, places[: len(at)].to(value.device)] = lone
    return rows.view(value.shape)


def with_extremes_again(value: torch.Tensor) -> torch.Tensor:
    """The largest and the least value twice, of all values and in some rows: which of them are the largest?"""
    if value.numel() < _LEAST_EXTREMES:
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    if value.dim() > 1 and value.shape[-1] >= _LEAST_EXTREMES:
        rows = changed.view(-1, value.shape[-1])
        at = distinct(max(1, len(rows) // _SHARE), len(rows)).to(value.device)
        rows[at] = _twice(rows[at])
    return _twice(changed.view(1, -1)).view(value.shape)


def with_extremes_twice(value: torch.Tensor, fewer: int = _FEWER) -> torch.Tensor:
    """The largest and the least value of one in `fewer` rows twice: which it is, a task that chooses leaves open."""
    if value.dim() < 2 or value.shape[-1] < _LEAST_EXTREMES or value.numel() < 2 * _FEWER * value.shape[-1]:
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    rows = changed.view(-1, value.shape[-1])
    at = distinct(max(1, len(rows) // fewer), len(rows)).to(value.device)
    rows[at] = _twice(rows[at])
    return changed


def _twice(rows: torch.Tensor) -> torch.Tensor:
    for largest in (True, False):
        values, places = rows.topk(2, largest=largest)
        rows = rows.scatter(-1, places[:, 1:], values[:, :1])
    return rows


def is_sorted(value: torch.Tensor) -> bool:
    """Whether all rows are in order, NaN last, and hold several values, as the bounds of intervals do."""
    if value.dim() == 0 or value.shape[-1] < _LEAST_SORTED or value.is_complex() or value.dtype is torch.bool:
        return False
    if math.lgamma(value.shape[-1] + 1) * (value.numel() // value.shape[-1]) < math.log(_LEAST_ORDERS):
        return False
    one, next_one, last = value[..., :-1], value[..., 1:], value[..., -1]
    in_order = bool(((next_one >= one) | (next_one != next_one)).all())
    return in_order and bool(((value[..., 0] < last) | (last != last)).all())


def in_form_of(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor with its rows in order, or with the halves or the pairs of each row equal, if those of `like` are."""
    if is_sorted(like):
        return value.sort(-1).values
    if like.dim() == 0:
        return value
    if _are_many_twice(*_halves(like)):
        return torch.cat([_halves(value)[0]] * 2, -1)
    if _are_many_twice(*_pairs(like)):
        return torch.stack([_pairs(value)[0]] * 2, -1).flatten(-2)
    return value


def _are_many_twice(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether these are the same values, and many: a rotary embedding has each cosine twice. Few are a mask."""
    if first.shape != second.shape or not first.is_floating_point() or first.numel() <= _FEW_VALUES:
        return False
    at_start = (0,) * first.dim()
    differs = first[at_start] != second[at_start]  # as random values do, which need no look at all of them
    return not bool(differs) and torch.equal(first, second) and len(torch.unique(first)) > _FEW_VALUES


def _halves(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    middle = value.shape[-1] // 2
    return value[..., :middle], value[..., middle:]


def _pairs(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return value[..., ::2], value[..., 1::2]
