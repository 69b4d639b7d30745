"""Draws the values of a task's integers and booleans anew, from what several draws of its own show about them.

A drawn tensor never leaves the range of the task's own draws, and keeps what they have in common: positions that always
hold one value, an order along rows, values that do not repeat, sums of rows, symmetry, a common divisor, and a small
set of values. Draws use torch's generator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from weir.kernel_eval.tasks.draws.equal_values import with_even_rows, with_lone_values
from weir.kernel_eval.tasks.draws.places import any_of, distinct, holding, seldom, some

NUM_DRAWS = 4
_MANY_DRAWS = 12  # of small tensors: that a position holds one of two values in all of them is seldom chance
_SMALL = 1 << 16  # elements
_MOST_DRAWS = 64  # of few integers, beside few floats: the ends of their range are among so many
_FEW = 256  # elements
_CHANCE = 1.25  # times as many positions as by chance may hold the same value in all draws, and some deviations more
_DEVIATIONS = 4.0
_FEW_VALUES = 16
_MASK = 2  # values
_MOSTLY = 0.75
_MANY_PAIRS = 32  # rows of two values, which are all in order by no chance
_MAX_RANGE = 2**62
_MOST = 2**30  # beyond a range: kernels may count and sum in 32 bits
_COUNTED_BITS = 32
_LEAST_MOVED, _MOVED_SHARE = 8, 4  # rows whose extremes are moved: so many, or one of so many
_RARE = 64  # one of so many is the least value of its dtype
_FEW_ROWS = 4
_MOST_PLACES = 1 << 24
_LEAST_LABELS = 3  # values; two are a mask
_LEAST_GROUPS = 3  # values, of which some are left out
_MAX_GAP = 0.25  # of the range; beyond it the values are not of one range (labels, and a number for "none")


class Integers(NamedTuple):
    """What the task's own draws of one tensor show; `values` are all that occurred, sorted; (num_values,)."""

    values: torch.Tensor
    fixed: torch.Tensor  # positions with the same value in each draw; shape of the tensor
    sorted: bool  # along rows: rising, or a mask that `descends`
    distinct: bool  # along rows, but for the value that says that there is none
    sums_are_fixed: bool  # of rows
    symmetric: bool
    has_least_rows: bool = False  # some hold the least value everywhere, so that all may
    descends: bool = False

    def in_order(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor with its rows in the order of the task's own."""
        return value.sort(-1, descending=self.descends).values if self.sorted else value


def left_out_labels(seen: Integers, asked: Collection[int]) -> list[int]:
    """The values of labels that may say that there is none: those that are asked for, and the least below zero."""
    values = seen.values.tolist() if _LEAST_LABELS <= len(seen.values) <= _MOST_PLACES else []
    return [value for value in values if value in asked][:1] or [value for value in values[:1] if value < 0]


def num_draws(inputs: list[Any]) -> int:
    """How many of the task's own draws say what its integers have in common: more where these are few."""
    tensors = [value for value in tree_leaves(inputs) if isinstance(value, torch.Tensor)]
    num_integers = sum(value.numel() for value in tensors if not value.is_floating_point() and not value.is_complex())
    if num_integers > _SMALL:
        return NUM_DRAWS
    if not num_integers:
        return 1
    return _MOST_DRAWS if num_integers <= _FEW and sum(map(torch.numel, tensors)) <= _SMALL else _MANY_DRAWS


def observed(draws: list[torch.Tensor]) -> Integers:
    """What draws of one tensor have in common; all of one shape and dtype."""
    wide = [draw.cpu().to(torch.int64) for draw in draws]
    first, rest = wide[0], wide[1:]
    fixed = torch.ones_like(first, dtype=torch.bool)
    for other in rest:
        fixed &= other == first
    fixed = _but_by_chance(fixed, wide)
    rows = [draw.flatten(0, -2) if draw.dim() > 1 else draw.reshape(1, -1) for draw in wide]
    ordered = [row.sort(-1).values for row in rows]
    long = first.dim() > 0 and first.shape[-1] > 2
    are_many = first.dim() > 0 and first.shape[-1] > 1 and sum(map(len, rows)) >= _MANY_PAIRS
    rises = all(torch.equal(*pair) for pair in zip(rows, ordered, strict=True))
    sums = [row.sum(-1) for row in rows]
    values = torch.unique(torch.cat([draw.reshape(-1) for draw in wide]))
    is_mask = len(values) <= _MASK and not rises
    falls = is_mask and all(torch.equal(row, other.flip(-1)) for row, other in zip(rows, ordered, strict=True))
    may_be_places = len(values) > 0 and int(values[-1]) - int(values[0]) <= _MOST_PLACES  # else chance repeats none
    return Integers(
        values,
        fixed,
        (long or are_many) and (rises or falls),
        long and may_be_places and all(map(functools.partial(_are_distinct, none=_none(values)), ordered)),
        long and all(torch.equal(sums[0], other) for other in sums[1:]),
        all(_is_symmetric(draw) for draw in wide),
        long and len(values) > 1 and any(bool((row == values[0]).all(-1).any()) for row in rows),
        falls,
    )


def _none(values: torch.Tensor) -> int | None:
    """The value that may say that there is none: the least, if it alone is below zero."""
    alone = len(values) > 2 and int(values[0]) < 0 <= int(values[1])
    return int(values[0]) if alone else None


def _are_distinct(ordered: torch.Tensor, none: int | None) -> bool:
    """Whether rows, in order, hold no value twice, but for `none`, which leaves at least half of them."""
    same = ordered[:, 1:] == ordered[:, :-1]
    if none is None:
        return not bool(same.any())
    is_none = ordered == none
    return not bool((same & ~is_none[:, 1:]).any()) and 2 * int(is_none.sum()) <= ordered.numel()


def _but_by_chance(fixed: torch.Tensor, draws: list[torch.Tensor]) -> torch.Tensor:
    """The positions that are fixed; none if independent values of the same shares would give as many."""
    number = fixed.numel()
    if not number or bool(fixed.all()):
        return fixed
    counts = torch.unique(torch.cat([draw.reshape(-1) for draw in draws]), return_counts=True)[1]
    by_chance = float(((counts / counts.sum()) ** len(draws)).sum()) * number
    is_more = int(fixed.sum()) > _CHANCE * by_chance + _DEVIATIONS * math.sqrt(by_chance)
    return fixed if is_more else torch.zeros_like(fixed)


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
    if not only_order:
        drawn = torch.where(seen.fixed, wide, drawn)
    drawn = seen.in_order(drawn)
    made = torch.empty_strided(declared.shape, declared.stride(), dtype=declared.dtype, device=declared.device)
    return made.copy_(drawn)


def widened(declared: torch.Tensor, seen: Integers, pointwise: bool, times: int = _MOST) -> torch.Tensor:
    """Integers beyond the range of the task's own, of either sign, among those of `declared`; its shape and dtype.

    Each row has its own range, so that a draw of several rows holds small numbers and as large ones as there may be.
    For tasks that compute with integers, and use none as a position or a size. Some rows have no positive value, some
    no negative one and sums as large as there may be. What 32 bits hold is not left, nor by sums, unless the task is
    `pointwise`. Labels of two values stay. `times`: how many times as large as the task's own they are at most.
    """
    keeps = seen.sums_are_fixed or seen.distinct or seen.sorted or seen.symmetric
    other_size = declared.shape != seen.fixed.shape
    if declared.dtype is torch.bool or other_size or len(seen.values) <= 2 or keeps or bool(seen.fixed.all()):
        return declared
    info = torch.iinfo(declared.dtype)
    own = max(1, int(seen.values.abs().max()))
    room = max(own, min(info.max, own * times, _MOST if pointwise else _MOST // max(1, declared.numel())))
    least = -1 if info.min < 0 else 0
    rows = declared.cpu().to(torch.int64).reshape(-1, declared.shape[-1] if declared.dim() else 1)
    if len(rows) < _FEW_ROWS and bool(torch.randint(2, ())):
        rows = rows.reshape(-1, 1)  # each element its own range: some are as large as there may be, too
    bits = own.bit_length() + 1 + torch.randint(_MOST.bit_length(), (len(rows), 1))
    far = (1 << bits.clamp(max=room.bit_length())).clamp(max=room)  # for each row its own
    kinds = [rows, _below(far, rows.shape) * _signs(least, rows.shape)]
    kinds.append(-torch.randint(0, own + 1, rows.shape) if least else _below(far, rows.shape))
    if len(rows) > len(kinds):  # each of these kinds has a row still
        kinds.append(_below(torch.full_like(far, room), rows.shape))  # sums of which are as large as there may be
    least_kind = 1 if len(rows) < _FEW_ROWS else 0  # else all rows may keep their own values
    kind = least_kind + (torch.randperm(len(rows)) + torch.randint(len(kinds), ())) % (len(kinds) - least_kind)
    drawn = kinds[0]
    for number, other in enumerate(kinds[1:], 1):
        drawn = torch.where(kind[:, None] == number, other, drawn)
    drawn = drawn.view(declared.shape)
    if pointwise and least and info.bits < _COUNTED_BITS:  # whose magnitude the dtype does not hold
        drawn = holding(drawn, [info.min], _RARE)
    drawn = torch.where(seen.fixed, declared.cpu().to(torch.int64), drawn)
    return drawn.to(declared.dtype).to(declared.device)


def with_moved_integers(declared: torch.Tensor, seen: Integers) -> torch.Tensor:
    """Some rows have their largest or least integer first, last or at a place beside a block's end, in exchange."""
    keeps = seen.symmetric or seen.sorted or bool(seen.fixed.any()) or declared.dtype is torch.bool
    if keeps or not declared.numel() or declared.dim() == 0 or len(seen.values) <= 2:
        return declared
    rows = declared.clone(memory_format=torch.contiguous_format).view(-1, declared.shape[-1])
    low, high = rows.aminmax(dim=-1, keepdim=True)
    shows = (((rows == low).sum(-1) == 1) & ((rows == high).sum(-1) == 1)).nonzero()[:, 0]  # where each is there once
    chosen = shows[torch.randperm(len(shows))][: max(_LEAST_MOVED, len(rows) // _MOVED_SHARE)].tolist()
    ends = [0, 0, rows.shape[-1] - 1, rows.shape[-1] - 1]  # the least and the largest at each, then at others
    places = (ends + seldom(len(chosen), rows.shape[-1]).tolist())[: len(chosen)]
    for number, (row, place) in enumerate(zip(chosen, places, strict=True)):
        own = int(rows[row].argmax() if number % 2 else rows[row].argmin())
        rows[row, own], rows[row, place] = rows[row, place].clone(), rows[row, own].clone()
    return rows.view(declared.shape)


def shift_counts(declared: torch.Tensor, seen: Integers, width: int) -> torch.Tensor:
    """Integers from 0 to below the width of what they shift, in some places of `declared`; its shape and dtype.

    Where the task's own draws have others, they stay.
    """
    if bool(seen.fixed.all()) or len(seen.values) < 2 or int(seen.values[0]) < 0 or int(seen.values[-1]) >= width:
        return declared
    counts = any_of(range(width), declared)
    return torch.where(some(declared, 2) & ~seen.fixed.to(declared.device), counts, declared)


def even(declared: torch.Tensor, seen: Integers, ends: tuple[int, ...]) -> torch.Tensor:
    """Integers or booleans with rows of one value, where the task's own draws allow such rows.

    `ends`: which values, 0 for the least that occurred and -1 for the largest.
    """
    keeps = seen.sums_are_fixed or seen.distinct or seen.symmetric
    if keeps or declared.shape != seen.fixed.shape or bool(seen.fixed.all()):
        return declared
    return torch.where(
        seen.fixed.to(declared.device), declared, with_even_rows(declared, seen.values[list(ends)].tolist())
    )


def even_across(declared: torch.Tensor, seen: Integers) -> list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """Changes by which some columns, or whole pieces along the first dimension, hold zero or the least value alone."""
    end = int((seen.values == 0).nonzero()[0]) if bool((seen.values == 0).any()) else 0

    def columns(value: torch.Tensor) -> torch.Tensor:
        return even(value.mT, seen._replace(fixed=seen.fixed.mT), (end,)).mT

    def pieces(value: torch.Tensor) -> torch.Tensor:
        flat = seen._replace(fixed=seen.fixed.reshape(len(value), -1))
        return even(value.reshape(len(value), -1), flat, (end,)).view(value.shape)

    if declared.dim() < 2 or declared.shape != seen.fixed.shape or seen.sorted:
        return []
    return [("even columns", columns), *([("even pieces", pieces)] if declared.dim() > 2 else [])]


def lone(declared: torch.Tensor, seen: Integers, end: int) -> torch.Tensor:
    """A mask with rows in which one element alone is not as the others, where the task's own draws allow such rows.

    `end`: what the others are, 0 for the lesser of the two values and -1 for the larger.
    """
    keeps = seen.sums_are_fixed or seen.distinct or seen.symmetric or seen.sorted
    if keeps or len(seen.values) != 2 or declared.shape != seen.fixed.shape or bool(seen.fixed.all()):
        return declared
    common, other = seen.values[[end, -1 - end]].tolist()
    return torch.where(seen.fixed.to(declared.device), declared, with_lone_values(declared, common, other))


def rows_of_asked(declared: torch.Tensor, seen: Integers, number: int) -> torch.Tensor:
    """Labels with rows that hold one `number` that the task asks for, everywhere or at all places but one.

    As `ignore_index` or padding: nothing of a row is left then, or one place. Only where the task's own draws have it,
    or where it is a mark below zero.
    """
    keeps = seen.sums_are_fixed or seen.distinct or seen.symmetric or seen.sorted or bool(seen.fixed.all())
    is_other = keeps or declared.shape != seen.fixed.shape or declared.dtype is torch.bool
    if is_other or (number >= 0 and number not in seen.values.tolist()) or len(seen.values) <= 2:
        return declared
    others = seen.values[seen.values != number].to(declared.device, declared.dtype)
    others = others[torch.randint(len(others), declared.shape, device=declared.device)]
    is_asked = declared == number
    asked = with_lone_values(with_even_rows(is_asked, [True]), common=True, lone=False, of_lone=True)
    changed = torch.where(asked, number, torch.where(is_asked, others, declared))
    return torch.where(seen.fixed.to(declared.device), declared, changed)


def left_out(declared: torch.Tensor, seen: Integers, asked: Sequence[int] = ()) -> torch.Tensor:
    """Integers of which some values occur nowhere: a group that is empty, a class that no label names.

    Draws of many integers hold each value, so that a group of none would never be asked for. What is `asked` for, as
    padding is, stays: without it, rows that hold hardly anything else would be usual ones.
    """
    keeps = seen.sums_are_fixed or seen.distinct or seen.symmetric or declared.dtype is torch.bool
    if keeps or declared.shape != seen.fixed.shape or bool(seen.fixed.all()):
        return declared
    values = torch.unique(declared)
    values = values[~torch.isin(values, values.new_tensor(asked))]
    if len(values) < _LEAST_GROUPS or declared.numel() < 2 * len(values):
        return declared
    inner = values[1:-1][torch.randperm(len(values) - 2).to(values.device)]
    end = values[[0, -1]][int(torch.randint(2, ()))][None]  # half of the time
    taken = torch.cat([inner[: max(1, len(values) // _FEW_ROWS // 2)], end[: int(torch.randint(2, ()))]])
    kept = values[~torch.isin(values, taken)]
    others = kept[torch.randint(len(kept), declared.shape, device=declared.device)]
    changed = torch.where(torch.isin(declared, taken) & ~seen.fixed.to(declared.device), others, declared)
    return seen.in_order(changed)


def reordered(declared: torch.Tensor, seen: Integers, only_computes: bool) -> torch.Tensor:
    """Other values where the task's own draws all hold the same: positions, a triangular mask, an order of rows.

    Booleans are turned over here and there, integers come in another order. What is in order stays in order, within
    its ends; unless the task `only_computes` with it, it stays as it is, since it may say where pieces begin.
    """
    is_same = declared.numel() > 1 and declared.shape == seen.fixed.shape and bool(seen.fixed.all())
    if not is_same or seen.symmetric or len(seen.values) < 2:
        return declared
    if declared.dtype is torch.bool:
        return declared ^ some(declared, _FEW_VALUES)
    if not seen.sorted:
        return _shuffled(declared)
    if not only_computes:
        return declared
    drawn = any_seen(declared.numel(), seen.values).view(declared.shape)
    drawn[..., 0], drawn[..., -1] = declared[..., 0].cpu(), declared[..., -1].cpu()
    return seen.in_order(drawn).to(declared.dtype).to(declared.device)


def without_zeros(value: torch.Tensor) -> torch.Tensor:
    """Integers with ones in place of zeros, by which nothing can be divided."""
    return value.masked_fill(value == 0, 1)


def above_zero(value: torch.Tensor) -> torch.Tensor:
    """The magnitudes of integers, and ones in place of zeros."""
    return without_zeros(value.abs().clamp_min(0))  # the least value has no magnitude


def other_single(value: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
    """A lone boolean is turned over; a lone integer is one less or more, or mostly one of the `numbers` that decide."""
    if value.dtype is torch.bool:
        return torch.logical_not(value)
    own, info = int(value), torch.iinfo(value.dtype)
    is_asked = len(numbers) > 0 and float(torch.rand(())) < _MOSTLY
    choices = numbers if is_asked else [number for number in (own - 1, own + 1) if number >= 0 or own < 0]
    chosen = [number for number in choices if number != own and info.min <= number <= info.max] or [own]
    return torch.full_like(value, chosen[int(torch.randint(len(chosen), ()))])


def outside(seen: Integers, numbers: Sequence[int]) -> list[int]:
    """Those of the numbers that lie beyond the task's own range: all above it, and the nearest below it."""
    least, largest = int(seen.values[0]), int(seen.values[-1])
    return [*(n for n in numbers if n > largest), *sorted(n for n in numbers if n < least)[-1:]]


def asked_for(value: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
    """Integers with those that a task asks for, as far as the dtype holds them; booleans stay."""
    if value.dtype is torch.bool:
        return value
    info = torch.iinfo(value.dtype)
    return holding(value, [number for number in numbers if info.min <= number <= info.max], _FEW_VALUES)


def with_one_each(value: torch.Tensor, seen: Integers, numbers: Sequence[int]) -> torch.Tensor:
    """Integers with each number of their range that they lack at one place: of a wide range, none would hold it."""
    keeps = seen.sums_are_fixed or seen.sorted or seen.symmetric or value.shape != seen.fixed.shape
    lacking = [number for number in numbers if _is_among(seen.values, number) and not bool((value == number).any())]
    places = (~seen.fixed).reshape(-1).nonzero().squeeze(1)
    if value.dtype is torch.bool or keeps or not lacking or len(places) < _FEW_VALUES:
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    chosen = places[torch.randperm(len(places))[: len(lacking)]].to(value.device)
    changed.view(-1)[chosen] = torch.tensor(lacking[: len(chosen)], dtype=value.dtype, device=value.device)
    return changed


def _is_among(values: torch.Tensor, number: int) -> bool:
    """Whether a number is of the range of values, but for what lies beside it: -1 is none of labels and -100."""
    range_, at = int(values[-1] - values[0]), int(torch.searchsorted(values, number))
    if number < values[0] or number > values[-1] or (number < 0 and int((values < 0).sum()) < _LEAST_LABELS):
        return False
    return int(values[at]) == number or int(values[at] - values[at - 1]) <= _MAX_GAP * range_


def _below(far: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Integers from 0 to what `far` holds for each row."""
    return torch.randint(_MAX_RANGE, shape) % (far + 1)


def _signs(least: int, shape: torch.Size) -> torch.Tensor:
    return torch.randint(2, shape) * 2 - 1 if least else torch.ones(shape, dtype=torch.int64)


def _from_slices(declared: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Slices of the declared values, of any values, of few values, and of the least and the largest."""
    count = declared.numel()
    drawn = any_seen(count, values)
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
    mixed = torch.stack(kinds).gather(0, which[None])[0]
    mixed[distinct(min(2, count), count)] = ends[torch.randperm(2)][: min(2, count)]
    return mixed.view(declared.shape)


def any_seen(count: int, values: torch.Tensor) -> torch.Tensor:
    """Any of the values that occurred, or of their range if they are of one; shape (count,)."""
    least, largest = int(values[0]), int(values[-1])
    gaps = torch.unique(values.diff())
    if len(values) <= _FEW_VALUES or largest - least > _MAX_RANGE or int(gaps[-1]) > _MAX_GAP * (largest - least):
        return values[torch.randint(len(values), (count,))]
    step = math.gcd(*gaps.tolist())
    return least + step * torch.randint((largest - least) // step + 1, (count,))


def _shuffled(values: torch.Tensor) -> torch.Tensor:
    """Each row in another order."""
    return values.gather(-1, torch.rand(values.shape, device=values.device).argsort(-1))


def _is_symmetric(values: torch.Tensor) -> bool:
    return values.dim() >= 2 and values.shape[-1] == values.shape[-2] > 1 and torch.equal(values, values.mT)
