"""Extremes at chosen places: rows whose largest value is the last one, the first, or one beside a block's end.

A maximum, an `argmax`, a pooling over an image show one element of each row. In random rows any index is the place of
the extreme once in thousands, so that one that is left out is seldom missed. Rows are those along each dimension, and
along the last ones together, up to the whole tensor. Rows in order besides: there each element is a running maximum.
Draws use torch's generator.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.tasks.draws.places import magnitudes, seldom
from weir.kernel_eval.tasks.input_draws import sums_to_one

Change = Callable[[torch.Tensor], torch.Tensor]

_MARGIN = 0.1, 0.25  # of the range of a row, by which an extreme lies beyond it;
_ROWS_TIMES = 2.5  # times as much in a row along the last dimension
_MOST = 1 << 20  # elements of the rows that are looked at together
_SHARE = 2  # one of so many rows, and so few that one of
_ELEMENTS_SHARE = 64  # elements is such an extreme
_ALIGNED_SHARE = 8  # one of so many rows is that of a weight
_LEAST_ALIGNED = 4
_LEAST_OF_ONE_SIGN = 8  # values in a row; fewer are of one sign by chance
_LEAST_SORTED = 3  # values of a row that is put in order
_SMALL = 300.0  # times smaller than others is a row that is small on purpose
_TRIED = 16  # rows, of which some are put in order
_TRIED_ENDS = 64  # rows, of which some have extremes at their ends
_LAST_OF_ONE = 4  # draws of a single row, of which one has its largest value first and others last
_LOUD = 4.0  # times as large as the rows that they replace


def with_far_extremes(
    value: torch.Tensor, across: bool, largest: bool = True, least: bool = True, farther: float = 0.0
) -> torch.Tensor:
    """Some rows have their largest and their least value, beyond all others, at chosen places.

    `across`: rows along each dimension, not only along the last ones together. `farther`: how far beyond, at least,
    where the first or the last place of a row along the last dimension is the largest.
    Zeros stay, what is small beside others stays so, and so does the sign of a row or column whose values have one.
    """
    if not may_change(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    kinds = _kinds(changed, across)
    for kind in kinds:
        for part, chosen in _chosen(kind.rows):
            low, high = _range(part)
            upper, lower = kind.margin(high - low), kind.margin(high - low)
            places = seldom(len(part), part.shape[-1])
            top = torch.where(high < 0, high / 2, high + upper)
            bottom = torch.where(low > 0, low / 2, low - lower)
            for is_taken, at, extreme in ((largest, places, top), (least, part.shape[-1] - 1 - places, bottom)):
                there = (*chosen, at.to(part.device))
                kind.rows[there] = torch.where(is_taken & kind.may_be(there, extreme), extreme, kind.rows[there])
    signs = [sign for sign, is_taken in ((1, largest), (-1, least)) if is_taken]
    flat = changed.view(-1)
    outermost = [(sign, end) for sign in signs for end in (-1, 0) if _is_extreme(flat, sign, end)]
    least_range = _usual(value) / 4
    for kind in kinds:
        _make_ends_extreme(kind, signs, least_range, farther if kind.is_last else 0.0)
    for sign, end in outermost:
        if not _is_extreme(flat, sign, end):
            flat[end] = sign * (sign * flat).amax() * (1 + _MARGIN[0])
    return changed


class _Kind(NamedTuple):
    """Rows of one kind of a tensor, whose zeros stay, as do what is small beside others and the sign of whole rows."""

    rows: torch.Tensor  # (..., their elements), a view
    of_one_sign: torch.Tensor  # of that shape: `_of_one_sign`
    small: torch.Tensor  # of that shape: `_small`
    is_last: bool  # they lie along the last dimension

    def margin(self, widths: torch.Tensor) -> torch.Tensor:
        """By how much an extreme lies beyond rows whose values are so far apart."""
        drawn = _MARGIN[0] + (_MARGIN[1] - _MARGIN[0]) * torch.rand(widths.shape, dtype=torch.float64)
        return (drawn * (_ROWS_TIMES if self.is_last else 1.0)).to(widths) * widths

    def may_be(self, there: tuple[Any, ...], extreme: torch.Tensor) -> torch.Tensor:
        """At which of some places of the rows an extreme may stand."""
        before = self.rows[there]
        may = (before != 0) & before.isfinite() & (extreme.abs() < torch.finfo(before.dtype).max / 4)
        may &= self.is_last | ~self.small[there]
        return may & (~self.of_one_sign[there] | (before.sign() == extreme.sign()))


def _is_extreme(flat: torch.Tensor, sign: int, end: int) -> bool:
    return int((sign * flat).argmax()) == end % len(flat)


def _kinds(changed: torch.Tensor, across: bool) -> list[_Kind]:
    tensors = (changed, _of_one_sign(changed), _small(changed))
    return [
        _Kind(rows, of_one_sign, small, rows.shape == changed.shape and rows.stride() == changed.stride())
        for rows, of_one_sign, small in zip(*(_levels(tensor, across) for tensor in tensors), strict=True)
    ]


def _make_ends_extreme(kind: _Kind, signs: Sequence[int], least_range: float, farther: float) -> None:
    """Both ends of a row become its largest values, each in a row of its own, and its least ones: this is certain.

    `farther`: how far the largest lie beyond others at least. The first and the last row stay if others can be taken:
    their ends are those of longer rows.
    """
    others, width = kind.rows.shape[:-1], kind.rows.shape[-1]
    count = prod(others)
    if width < 2 or (count < 2 and not kind.is_last):
        return
    number = max(1, min(count, _TRIED_ENDS, _MOST // width))
    numbers = torch.randperm(count)[:number] if count < _MOST else torch.unique(torch.randint(count, (number,)))
    at = tuple(place.to(kind.rows.device) for place in torch.unravel_index(numbers, others)) if others else ()
    part = kind.rows[at].reshape(-1, width)
    low, high = _range(part)
    least, largest = part.aminmax(dim=-1)
    is_wide = high - low > least_range
    usable = torch.isfinite(high - low) & (high - low > least_range / _SMALL)
    is_inner = ((numbers > 0) & (numbers < count - 1)).to(part.device)
    ends = (-1, 0) if count > 1 or int(torch.randint(_LAST_OF_ONE, ())) else (0, -1)
    given: list[tuple[int, int, int]] = []  # rows, signs, ends
    for sign, end in itertools.product(signs, ends):
        margin = kind.margin(high - low)
        own, extreme = (high, high + margin + farther) if sign > 0 else (low, low - margin)
        there = (*at, torch.full((len(part),), end % width, device=part.device))
        fits = usable & (own == (largest if sign > 0 else least)) & (sign * own >= 0) & kind.may_be(there, extreme)
        fits[[row for row, its_sign, its_end in given if sign == its_sign or end == its_end]] = False
        for allowed in (fits & is_wide & is_inner, fits & is_wide, fits):
            if bool(allowed.any()):
                rows = allowed.nonzero().view(-1)
                row = int(rows[torch.randint(len(rows), ())])
                kind.rows[tuple(place[row] for place in there)] = extreme[row]
                given.append((row, sign, end))
                break


def with_moved_extremes(value: torch.Tensor, across: bool) -> torch.Tensor:
    """Some rows have their own largest or least value at chosen places, in exchange for what was there."""
    if not may_change(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    for rows, of_one_sign in zip(_levels(changed, across), _levels(_of_one_sign(changed), across), strict=True):
        for part, chosen in _chosen(rows):
            of_largest = torch.arange(len(part), device=part.device) % 2 == int(torch.randint(2, ()))
            own = torch.where(of_largest, part.argmax(-1), part.argmin(-1))
            at = seldom(len(part), part.shape[-1]).to(part.device)
            extreme, before = (part.gather(-1, index[:, None])[:, 0] for index in (own, at))
            keeps = (extreme == 0) | (before == 0)
            keeps |= (of_one_sign[(*chosen, own)] | of_one_sign[(*chosen, at)]) & (extreme.sign() != before.sign())
            rows[(*chosen, own)] = torch.where(keeps, extreme, before)
            rows[(*chosen, at)] = torch.where(keeps, before, extreme)
    return changed


def with_rows_in_order(value: torch.Tensor, dimensions: Sequence[int]) -> torch.Tensor:
    """Two rows along each of some dimensions are in ascending order, two in descending order, if there are so many.

    Rows that hold zeros stay, and such as have an extreme at an end already.
    """
    if not may_change(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    for dimension in dimensions:
        rows = changed.movedim(dimension, -1)
        others, width = rows.shape[:-1], rows.shape[-1]
        count = prod(others)
        if width < _LEAST_SORTED or count < _LEAST_ALIGNED:
            continue
        numbers = torch.randint(count, (min(count, _TRIED),))
        tried = rows[torch.unravel_index(numbers.to(rows.device), others)]
        ends = torch.stack([tried.argmax(-1), tried.argmin(-1)])
        fit = (tried != 0).all(-1) & ((ends > 0) & (ends < width - 1)).all(0)
        chosen = torch.unique(numbers[fit.cpu()])
        for descending, number in zip((False, True, False, True), chosen[torch.randperm(len(chosen))], strict=False):
            at = torch.unravel_index(number, others)
            rows[at] = rows[at].sort(descending=descending).values
    return changed


def aligned(value: torch.Tensor, other: torch.Tensor) -> Change | None:
    """The change that gives a tensor rows of another one that it is multiplied with; None where no sizes fit.

    The other is a matrix, a stack of matrices of which one is taken, or the filters of a convolution.
    """
    if other is value or value.dim() < 2:
        return None
    for rows in (other, other.mT) if other.dim() > 1 else ():
        if rows.shape[-1] == value.shape[-1] and (rows.dim() == 2 or rows.shape[:-2] == value.shape[:-2]):
            return functools.partial(with_rows_of, other=rows)
    if value.dim() != other.dim() or value.dim() == 2 or value.shape[1] != other.shape[1]:
        return None
    fits = all(one >= two for one, two in zip(value.shape[2:], other.shape[2:], strict=True))
    return functools.partial(with_patches_of, weight=other) if fits else None


def with_rows_of(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Some rows are those of a matrix, of either sign: the products of the two are largest at chosen places.

    `other`: (N, K), or a stack of such, where K is the last size of `value`; of a stack each with its own.
    """
    if not may_change(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    stacked = other.dim() > 2
    pieces = changed.view(-1, *value.shape[-2:]) if stacked else changed.view(1, -1, value.shape[-1])
    count = min(pieces.shape[1], max(_LEAST_ALIGNED, pieces.shape[1] // _ALIGNED_SHARE))
    for piece, rows in zip(pieces, other.detach().reshape(-1, *other.shape[-2:]), strict=True):
        chosen = torch.randperm(len(piece))[:count].to(value.device)
        places = seldom((count + 1) // 2, len(rows)).repeat_interleave(2)[:count]  # each with both signs
        taken = rows[places.to(rows.device)].to(piece)
        piece[chosen] = _loud(taken, piece) * _signs(count).to(piece)[:, None]
    return changed


def with_patches_of(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Images have filters of a convolution, of either sign, in their corners: its results are largest there.

    `weight`: (O, C, ...), of which `value` has the channels and is no smaller.
    """
    if not may_change(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    sizes = weight.shape[2:]
    corners = list(itertools.product((False, True), repeat=len(sizes)))
    if any(size < 2 * taken for size, taken in zip(value.shape[2:], sizes, strict=True)):
        corners = [corners[int(torch.randint(len(corners), ()))]]
    turn = int(torch.randint(2, ()))
    for image in changed:
        filters = weight.detach()[seldom(len(corners), len(weight)).to(weight.device)].to(value)
        order = torch.randperm(len(corners)).to(filters.device)
        for corner, patch in zip(corners, _loud(filters[order], value), strict=True):
            at = [slice(-n, None) if last else slice(n) for last, n in zip(corner, sizes, strict=True)]
            image[(slice(None), *at)] = patch * (1 - 2 * ((sum(corner) + turn) % 2))
    return changed


def _loud(taken: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """As large as `like` is where it is of usual size, and a few times more."""
    own = taken.float().square().mean().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    return taken * (_LOUD * _usual(like) / own).to(taken)


def _usual(value: torch.Tensor) -> float:
    """The magnitude in the middle of those above zero, of some of them if they are many; 1 without any."""
    found = magnitudes(value)
    return float(found.median()) if found.numel() else 1.0


def _signs(count: int) -> torch.Tensor:
    return 1 - 2 * ((torch.arange(count) + torch.randint(2, ())) % 2)


def may_change(value: torch.Tensor) -> bool:
    """Whether single values of a tensor can be replaced: it is neither symmetric nor made of probabilities."""
    is_symmetric = value.dim() > 1 and value.shape[-1] == value.shape[-2] and torch.equal(value, value.mT)
    return value.numel() > 2 and value.dim() > 0 and not is_symmetric and not sums_to_one(value)


def _of_one_sign(value: torch.Tensor) -> torch.Tensor:
    """Which elements lie in a row, along any dimension, of values above zero only or below it."""
    found = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    for dimension, size in enumerate(value.shape):
        if size >= _LEAST_OF_ONE_SIGN:
            low, high = value.aminmax(dim=dimension, keepdim=True)
            found |= (low > 0) | (high < 0)
    return found


def _small(value: torch.Tensor) -> torch.Tensor:
    """Which elements lie in a row, along any dimension, that is far smaller than others."""
    found = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    for dimension, size in enumerate(value.shape):
        if size >= _LEAST_OF_ONE_SIGN:
            sizes = value.abs().amax(dimension, keepdim=True)
            above = sizes[sizes > 0]
            if above.numel() > 1:
                found |= sizes < above.float().median().to(sizes) / _SMALL
    return found


def _levels(value: torch.Tensor, across: bool) -> Iterator[torch.Tensor]:
    """Views of a contiguous tensor whose last dimension is a kind of row; the longest rows last."""
    for dimension in range(value.dim() - 1) if across else ():
        yield value.movedim(dimension, -1)
    for dimension in range(value.dim() - 1, -1, -1):
        if dimension == 0 or value.shape[dimension - 1] > 1 or dimension == value.dim() - 1:
            yield value.view(*value.shape[:dimension], -1)


def _chosen(rows: torch.Tensor) -> Iterator[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
    """Some of the rows, (n, their elements), and their places, first of rows that are not small beside others.

    None where rows are of one element, or hold NaN.
    """
    others, width = rows.shape[:-1], rows.shape[-1]
    count = prod(others)
    number = max(1, min(count // _SHARE, count * width // _ELEMENTS_SHARE, _MOST // max(1, width)))
    if width < 2 or not count:
        return
    numbers = torch.randperm(count)[:number] if count < _MOST else torch.unique(torch.randint(count, (number,)))
    numbers = numbers[torch.randperm(len(numbers))]
    at = tuple(place.to(rows.device) for place in torch.unravel_index(numbers, others)) if others else ()
    part = rows[at] if others else rows[None]
    low, high = _range(part)
    usable = torch.isfinite(high - low)
    if len(part) == 1:
        if bool(usable):
            yield part, at
        return
    order = (high - low).nan_to_num(0.0, 0.0, 0.0).argsort(descending=True)[: len(part) // 2 + 1]
    order = torch.cat([order[torch.randperm(len(order)).to(order.device)], _others(order, len(part))])
    order = order[usable[order]]
    if len(order):
        yield part[order], tuple(place[order] for place in at)


def _range(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the largest finite value of each row, (n,) each; NaN for one that holds NaN."""
    infinite = rows.isinf()
    if not bool(infinite.any()):
        low, high = rows.aminmax(dim=-1)
        return low, high
    return rows.masked_fill(infinite, torch.inf).amin(-1), rows.masked_fill(infinite, -torch.inf).amax(-1)


def _others(order: torch.Tensor, count: int) -> torch.Tensor:
    """The numbers below a count that are not among those, in no order."""
    rest = torch.ones(count, dtype=torch.bool, device=order.device)
    rest[order] = False
    numbers = rest.nonzero().squeeze(1)
    return numbers[torch.randperm(len(numbers)).to(numbers.device)]
