"""Rows: some of those of large inputs and answers, for what a part shows as well; rows and columns that are replaced.

Replaced ones are zeros, tiny, or of one sign; draws use torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from weir.kernel_eval.tasks.answers import num_floating
from weir.kernel_eval.tasks.draws.places import extremes, holding, some
from weir.kernel_eval.tasks.draws.small_values import scales
from weir.kernel_eval.tasks.input_draws import sums_to_one

MANY = 1 << 22  # elements; fewer are looked at whole
_FEW = 1 << 20  # elements of a part
_ENDS_SHARE = 8  # one of so many elements is an end
_REPLACED_SHARE = 16  # one of so many rows is replaced
_USUAL = 1e3  # a row so many times smaller than others is there because it is small
_TINY_DIGITS = 3.0, 14.0  # after the point, before the first that is none: of the scale of tiny rows
_ANY_SHARE = 4  # one of so many tiny rows is of any such scale, where it is known what counts
_PIECE = 1 << 20  # elements that are looked at together
_PIECES, _LEAST_PIECE = 4, 8  # of one dimension, and elements of one that is replaced
_TILES, _LEAST_TILE = 4, 4  # along a dimension, and elements of one
_LEAST_ROWS = 4  # of a tensor whose rows are replaced
_FLAT_BLOCK = 256  # elements; blocks that are smaller have a mask


def rows(value: Any, size: int, at: slice) -> Any:
    """Some rows of an argument that has so many; any other stays."""
    return value[at] if isinstance(value, torch.Tensor) and value.dim() and len(value) == size else value


def num_rows(inputs: list[Any]) -> float:
    """The rows of the largest input of floats; infinity without any."""
    largest = _largest(inputs)
    return math.inf if largest is None else largest.numel() / largest.shape[-1]


def row_size(inputs: list[Any]) -> float:
    """The elements of a row of the largest input of floats; infinity without any."""
    largest = _largest(inputs)
    return math.inf if largest is None else largest.shape[-1]


def _largest(inputs: list[Any]) -> torch.Tensor | None:
    given = [value for value in tree_leaves(inputs) if num_floating(value) and value.dim() and value.numel()]
    return max(given, key=torch.Tensor.numel, default=None)


def needs_mask(inputs: list[Any], size: int) -> bool:
    """Whether blocks of a flat input need a mask, or need none at any size: what divides the whole divides the rest."""
    largest = max((value.numel() for value in tree_leaves(inputs) if isinstance(value, torch.Tensor)), default=0)
    return bool(largest % _FLAT_BLOCK or size % 2)


def every_nth(inputs: list[Any], outputs: list[torch.Tensor]) -> tuple[slice, list[Any]] | None:
    """The place of some rows of the outputs, spread evenly, and the inputs with these rows only.

    None where all are few, or the outputs have no rows in common.
    """
    sizes = {output.shape[:1] for output in outputs}
    num_elements = max(
        (tensor.numel() for tensor in (*inputs, *outputs) if isinstance(tensor, torch.Tensor)), default=0
    )
    if num_elements < MANY or len(sizes) != 1 or not (size := next(iter(sizes))) or size[0] < 2:
        return None
    at = slice(None, None, min(size[0], num_elements // _FEW))
    return at, [rows(value, size[0], at) for value in inputs]


def thinned(values: torch.Tensor) -> torch.Tensor:
    """Every n-th row of many values; of few, all."""
    step = 1 if values.numel() < MANY or values.dim() == 0 else min(len(values), values.numel() // _FEW)
    return values[::step] if step > 1 else values


def with_zero_rows(value: torch.Tensor) -> torch.Tensor:
    """Some rows along the last dimension, and one piece along the first, are zeros: what is divided by their size?

    Of one dimension, it is one of four pieces, since a task may make rows of it (`rewards.view(-1, 8)`).
    """
    if _is_in_pieces(value):
        return with_zero_rows(value.reshape(_PIECES, -1)).view(value.shape)
    if value.dim() < 2 or sums_to_one(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    rows = changed.view(-1, value.shape[-1])
    if len(rows) >= _LEAST_ROWS and value.shape[-1] > 1:
        rows[spare(rows, max(1, len(rows) // _REPLACED_SHARE))] = 0.0
    if value.dim() > 2 and value.shape[0] >= _LEAST_ROWS:
        changed[spare(changed, 1)] = 0.0
    return changed


def with_zero_tiles(value: torch.Tensor) -> torch.Tensor:
    """Larger parts than rows are zeros: a tile of rows and columns, some rows that follow each other, a plane.

    A tile has a quarter of the rows and of the columns, and such rows are an eighth of all: those of which the size of
    a block is a part, wherever that begins.
    """
    if value.dim() < 2 or sums_to_one(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    planes = changed.view(-1, *value.shape[-2:])
    count, height, width = planes.shape
    if min(height, width) >= _TILES * _LEAST_TILE:
        top, left = (int(torch.randint(_TILES, ())) * (size // _TILES) for size in (height, width))
        planes[_any(count), top : top + height // _TILES, left : left + width // _TILES] = 0.0
    if height >= 2 * _TILES * _LEAST_TILE:
        top = int(torch.randint(2 * _TILES, ())) * (height // (2 * _TILES))
        planes[_any(count), top : top + height // (2 * _TILES)] = 0.0
    if count >= _LEAST_ROWS:
        planes[_any(count)] = 0.0
    return changed


def _any(count: int) -> int:
    return int(torch.randint(count, ()))


def with_nan_row(value: torch.Tensor) -> torch.Tensor:
    """One row along the last dimension is NaN everywhere: what is left of it has no values."""
    if value.dim() < 2 or value.numel() < _LEAST_ROWS * value.shape[-1]:
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    rows = changed.view(-1, value.shape[-1])
    rows[int(torch.randint(len(rows), ()))] = math.nan
    return changed


def _is_in_pieces(value: torch.Tensor) -> bool:
    return value.dim() == 1 and len(value) % _PIECES == 0 and len(value) >= _PIECES * _LEAST_PIECE


def with_tiny_rows(value: torch.Tensor, added: Sequence[float] = ()) -> torch.Tensor:
    """Some rows along the last dimension are so small that what is added to their size, or is its least, counts.

    `added`: what a task adds, or takes as the least; without any, it may be of any size. Of one dimension, as above.
    """
    if _is_in_pieces(value):
        return with_tiny_rows(value.reshape(_PIECES, -1), added).view(value.shape)
    if value.dim() < 2 or not 1 < value.shape[-1] <= value.numel() // _LEAST_ROWS or sums_to_one(value):
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    rows = changed.view(-1, value.shape[-1])
    chosen = spare(rows, len(rows))
    chosen = chosen[rows[chosen].any(-1)][: max(1, len(rows) // _REPLACED_SHARE)]  # rows of zeros stay
    scale = _tiny_scales(len(chosen), added)
    rows[chosen] = torch.randn(rows[chosen].shape, dtype=value.dtype, device=value.device) * scale.to(rows)
    return changed


def with_tiny_columns(value: torch.Tensor, dimension: int, added: Sequence[float] = ()) -> torch.Tensor:
    """What `with_tiny_rows` does, for some fibres along a dimension; of more than two, for all at one index of it."""
    size, others = value.shape[dimension], value.numel() // max(1, value.shape[dimension])
    if value.dim() > 2 and size > 1 and not sums_to_one(value):
        changed = value.clone(memory_format=torch.contiguous_format)
        pieces = changed.movedim(dimension, 0)
        chosen = spare(pieces.reshape(size, -1), size)
        chosen = chosen[pieces[chosen].reshape(len(chosen), -1).any(-1)][:1]  # what is zero stays
        drawn = torch.randn_like(pieces[chosen]) * _tiny_scales(1, added).to(value)
        pieces[chosen] = drawn.masked_fill(pieces[chosen] == 0, 0.0)
        return changed
    if value.dim() == 2 and size > 1 and others >= 2 * _LEAST_ROWS:
        return with_tiny_rows(value.mT, added).mT
    return value


def _tiny_scales(count: int, added: Sequence[float]) -> torch.Tensor:
    """Shape (count, 1). Every fourth, and all where nothing is known to be added, is of any size."""
    of_any = 10.0 ** -(_TINY_DIGITS[0] + (_TINY_DIGITS[1] - _TINY_DIGITS[0]) * torch.rand(count, 1))
    if not added:
        return of_any
    is_any = torch.arange(count) % _ANY_SHARE == _ANY_SHARE - 1
    return torch.where(is_any[:, None], of_any, scales(added, count)[:, None])


def with_one_sign(value: torch.Tensor, dimension: int) -> torch.Tensor:
    """Some fibres along a dimension have values above zero only, others below: a zero is not the largest of these."""
    size, others = value.shape[dimension], value.numel() // max(1, value.shape[dimension])
    if value.dim() < 2 or size < 2 or others < 2 * _LEAST_ROWS or sums_to_one(value):
        return value
    changed = value.movedim(dimension, -1).clone(memory_format=torch.contiguous_format)
    fibres = changed.view(-1, size)
    pieces = torch.split(fibres, max(1, _PIECE // size))
    sizes = torch.cat([piece.double().square_().mean(-1) for piece in pieces]).sqrt()
    is_usual = ((sizes > sizes.median() / _USUAL) & (sizes < sizes.median() * _LEAST_ROWS)).cpu()
    most_zeros = size // _LEAST_ROWS if dimension == -1 else 0  # columns of zeros stay
    may_change = is_usual & ((fibres == 0).sum(-1).cpu() <= most_zeros)
    may_change[extremes(fibres).cpu() // size] = False
    order = torch.randperm(len(fibres))
    order = order[may_change[order]][: 2 * max(1, len(fibres) // _REPLACED_SHARE)]
    if not len(order):
        return value
    signs = 1 - 2 * ((torch.arange(len(order)) + torch.randint(2, ())) % 2)
    chosen = order.to(value.device)
    least = sizes[chosen].maximum(sizes.median()).to(value.dtype)  # a tiny answer would not count beside others
    fibres[chosen] = (fibres[chosen].abs() + least[:, None]) * signs[:, None].to(fibres)
    return changed.movedim(-1, dimension)


def with_zero_columns(value: torch.Tensor, dimension: int) -> torch.Tensor:
    """Some fibres along a dimension are zeros, and of more than two dimensions all at one index of it."""
    size, others = value.shape[dimension], value.numel() // max(1, value.shape[dimension])
    if size < 2 or others < _LEAST_ROWS or sums_to_one(value):
        return value
    changed = value.movedim(dimension, -1).clone(memory_format=torch.contiguous_format)
    fibres = changed.view(-1, size)
    fibres[spare(fibres, max(1, len(fibres) // _REPLACED_SHARE))] = 0.0
    if value.dim() > 2:
        changed[..., spare(fibres.mT, 1)] = 0.0
    return changed.movedim(-1, dimension)


def spare(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Some of the rows, by number, in no order; none that holds the largest or the least value, if others do not."""
    width = max(1, rows.numel() // len(rows))
    order = torch.randperm(len(rows))
    others = order[~torch.isin(order, extremes(rows) // width)]
    return (others if len(others) else order)[:count].to(rows.device)


def with_ends(value: torch.Tensor) -> torch.Tensor:
    """The ends of a closed range, 0 to 1 or -1 to 1, and probabilities of zero."""
    if sums_to_one(value):
        kept = value.masked_fill(_but_the_largest(value, some(value, _ENDS_SHARE)), 0.0)
        return kept / kept.sum(-1, keepdim=True)
    least, most = (float(end) for end in torch.aminmax(value))
    if not -1 <= least <= most <= 1:
        return value
    return holding(value, (0.0 if least >= 0 else -1.0, 1.0), _ENDS_SHARE)


def _but_the_largest(value: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Places of rows without the largest value of each; the value beside it is chosen in one row."""
    largest = value.argmax(-1, keepdim=True)
    row = int(torch.randint(largest.numel(), ()))
    beside = (largest.view(-1)[row] + 1) % value.shape[-1]
    chosen.view(-1, value.shape[-1])[row, beside] = True
    return chosen.scatter_(-1, largest, value=False)
