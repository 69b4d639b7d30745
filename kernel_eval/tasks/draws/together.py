"""Changes of several inputs together, of one shape: NaN in one of them alone, values near an end of their range.

Where one input alone is infinite or huge, so is most of what is computed from it; where two are NaN, so is what takes
the other; where one alone is nearly zero, no sum of them is. Draws use torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

_NAN_SHARE = 32  # one of so many elements is NaN in one of the inputs
_ROW_SHARE = 16  # one of so many rows is near the end of its range
_LEAST_WIDTH = 64  # of a row; answers of narrower ones have no scale of their own
_LEAST_ROWS = 8
_ZERO_SHARE, _LEAST_PIECES = 32, 4  # one of so many rows is zero, of so many rows or pieces at least
_OF_THE_RANGE = 0.58  # of the exponents: squares overflow, and their root does not
_NEAR_THE_END = 0.55, 0.4  # of the range, and so much more: a sum of two overflows
_FADED = 3.0, 9.0  # digits after the point, before the first that is none: of a value, or of the root of a square
_ZERO, _SQUARE, _KINDS = 1, 4, 8  # of so many values: zeros and squares; the rest are no squares


def are_alike(values: Sequence[torch.Tensor]) -> bool:
    """Whether there are several tensors of floats, all of one shape and dtype."""
    return len(values) > 1 and len({(value.shape, value.dtype) for value in values}) == 1


def with_lone_nans(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of one shape; at a place where one is NaN, no other one is."""
    shape = values[0].shape
    which = torch.randint(len(values) * _NAN_SHARE, shape)
    which.view(-1)[torch.randperm(which.numel())[: len(values)]] = torch.arange(min(len(values), which.numel()))
    return [value.masked_fill((which == at).to(value.device), math.nan) for at, value in enumerate(values)]


def with_far_squares(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of one shape with some rows, the same of each, whose squares leave the range, and their roots do not."""
    chosen, most = _rows(values), _largest(values) ** _OF_THE_RANGE
    return [_with_rows(value, chosen, lambda rows: torch.randn_like(rows) * most) for value in values]


def with_far_sums(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of one shape with some rows, the same of each, whose sums leave the range: all have the same sign."""
    chosen, most = _rows(values), _largest(values)
    least, more = _NEAR_THE_END
    signs = (torch.randint(2, (len(chosen), values[0].shape[-1] if values[0].dim() else 1)) * 2 - 1).to(values[0])
    return [_with_rows(value, chosen, lambda r: (torch.rand_like(r) * more + least) * most * signs) for value in values]


def faded(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of one shape, nearly zero together: at each place some zero, some as small, and some as small squares.

    So what is added to a root of squares counts (`m / (v.sqrt() + 1e-8)`), beside answers that are no larger.
    """
    digits = _FADED[0] + (_FADED[1] - _FADED[0]) * torch.rand(values[0].shape)
    changed = []
    for value in values:
        kinds = torch.randint(_KINDS, value.shape)
        factors = torch.where(kinds < _SQUARE, 10.0 ** -(2 * digits), 10.0**-digits)
        changed.append(value * factors.masked_fill_(kinds < _ZERO, 0.0).to(value))
    return changed


def with_zero_rows_together(values: Sequence[torch.Tensor], *, few: bool = False) -> list[torch.Tensor]:
    """Tensors with some rows that are zero in each that has rows as the largest, and one piece along the first.

    `few`: rows or pieces from four to seven, else eight and more.
    """
    largest = max(values, key=torch.Tensor.numel)
    count = largest.shape[:-1].numel() if largest.dim() and largest.shape[-1] > 1 else 0
    rows = torch.randperm(count)[: max(1, count // _ZERO_SHARE)] if _is_spare(count, few) else None
    has_pieces = largest.dim() > 2 and _is_spare(len(largest), few)
    piece = int(torch.randint(len(largest), ())) if has_pieces else None
    changed = []
    for value in values:
        made = value.clone(memory_format=torch.contiguous_format)
        if rows is not None and value.shape[:-1] == largest.shape[:-1]:
            made.view(count, -1)[rows.to(value.device)] = 0
        if piece is not None and value.dim() > 0 and len(value) == len(largest):
            made[piece] = 0
        changed.append(made)
    return changed


def _is_spare(count: int, few: bool) -> bool:
    return _LEAST_PIECES <= count < _LEAST_ROWS if few else count >= _LEAST_ROWS


def _largest(values: Sequence[torch.Tensor]) -> float:
    return float(torch.finfo(values[0].dtype).max)


def _rows(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """The numbers of some rows; none where rows are few or narrow, since nothing else would count beside these."""
    width = values[0].shape[-1] if values[0].dim() else 1
    count = values[0].numel() // width if width else 0
    if values[0].dim() < 2 or width < _LEAST_WIDTH or count < _LEAST_ROWS:
        return torch.zeros(0, dtype=torch.int64)
    return torch.randperm(count)[: max(1, count // _ROW_SHARE)]


def _with_rows(value: torch.Tensor, chosen: torch.Tensor, draw: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    if not len(chosen):
        return value
    rows = value.clone(memory_format=torch.contiguous_format).view(-1, value.shape[-1])
    rows[chosen.to(value.device)] = draw(rows[chosen.to(value.device)])
    return rows.view(value.shape)
