"""Draws the values of a task's inputs anew, from distributions that need all of the function; see `input_variants.py`.

A drawn tensor keeps the shape, strides and dtype of the declared one, and what the task may rely on: exact zeros, rows
that sum to one, symmetry, and values from a small set. Integers and booleans are drawn anew only where it is known what
the task's own draws of them have in common (`integer_draws.py`). Draws use torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.integer_draws import Integers, redrawn_integers

_MIN_SLICES = 6  # one for each kind that a mixed draw holds
_FEW_VALUES = 16
_ONES_TOLERANCE = 1e-3
_SAMPLED = 4096  # elements that are enough to see that values are many


def redrawn(inputs: list[Any], draw: Draw, integers: Sequence[Integers] = ()) -> list[Any]:
    """The inputs of one call with its tensors drawn anew; lists and tuples within are followed.

    `integers`: what is known of each tensor of integers or booleans, in their order; none of them: they stay.
    """
    known = iter(integers)
    return [_value(value, draw, known) for value in inputs]


def is_drawn_as_integers(value: Any) -> bool:
    """Whether a value is a tensor of integers or booleans."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _value(value: Any, draw: Draw, known: Iterator[Integers]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_value(item, draw, known) for item in value)
    if is_drawn_as_integers(value):
        seen = next(known, None)
        return value if seen is None else redrawn_integers(value, seen)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() == 0:
        return value
    if draw is Draw.DECLARED:
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(
        _drawn(value, draw)
    )


def _drawn(declared: torch.Tensor, draw: Draw) -> torch.Tensor:
    """New values for a tensor; shape and device of `declared`, float32 or float64."""
    wide = torch.float64 if declared.dtype is torch.float64 else torch.float32
    values = declared.to(wide)
    if draw is Draw.NEGATED:
        return -values
    if _has_few_values(values):
        return values
    if _sums_to_one(values):
        return torch.softmax(torch.randn_like(values) * 3, dim=-1)
    if draw is Draw.SCALED:
        slices = _slices(values)
        factors = torch.exp2(torch.rand(len(slices), 1, dtype=wide, device=values.device) * 4 - 2)
        return _unsliced(slices * factors, values)
    return _keeping_structure(values, _by_draw(values, draw, _unit(declared)))


def _unit(declared: torch.Tensor) -> float:
    """The scale that draws are relative to: 1, or the declared one where it is far from 1 or precision is low."""
    rms = float(declared.double().square().mean().sqrt())
    if not math.isfinite(rms) or rms == 0:
        return 1.0
    half = declared.dtype in (torch.float16, torch.bfloat16)
    return rms if half or not 0.05 <= rms <= 20 else 1.0


def _by_draw(values: torch.Tensor, draw: Draw, unit: float) -> torch.Tensor:
    if draw not in (Draw.MIXED, Draw.MILD):
        return _KINDS[draw](values) * (1.0 if draw is Draw.NEAR_ONE else unit)
    slices = _slices(values)
    kinds = [Draw.DECLARED, *(_KINDS if draw is Draw.MIXED else _MILD_KINDS)]
    for place, index in enumerate(torch.randperm(len(kinds)).tolist()):
        part = slices[place :: len(kinds)]  # a view
        if part.numel() and kinds[index] is not Draw.DECLARED:
            part.copy_(_by_draw(part, kinds[index], unit))
    return _unsliced(slices, values)


def _slices(values: torch.Tensor) -> torch.Tensor:
    """A copy, shape (slices, their elements): one a leading index, or segments if these are few; padded with zeros."""
    count = 1
    for size in values.shape:
        if count >= _MIN_SLICES:
            break
        count *= size
    num_elements = values.numel()
    if count == num_elements or count < _MIN_SLICES:
        count = min(num_elements, _MIN_SLICES)
    length = math.ceil(num_elements / count)
    flat = values.reshape(-1)
    padded = torch.cat([flat, flat.new_zeros(count * length - num_elements)])
    return padded.view(count, length)


def _unsliced(slices: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return slices.reshape(-1)[: like.numel()].view(like.shape)


def _wide(like: torch.Tensor) -> torch.Tensor:
    scale: float = 10.0 ** (1.5 + 0.5 * float(torch.rand(())))  # 30 to 100: exponentials overflow among few values
    return torch.randn_like(like) * scale


def _near_one(like: torch.Tensor) -> torch.Tensor:
    return 1.0 + 0.02 * torch.randn_like(like)


def _sparse(like: torch.Tensor) -> torch.Tensor:
    spikes = torch.rand_like(like) < 1 / 64
    return torch.where(spikes, torch.randn_like(like) * 20, torch.randn_like(like) * 0.05)


def _offset(like: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(like) + (6.0 if float(torch.rand(())) < 0.5 else -6.0)


_KINDS: dict[Draw, Callable[[torch.Tensor], torch.Tensor]] = {
    Draw.NORMAL: torch.randn_like,
    Draw.WIDE: _wide,
    Draw.NEAR_ONE: _near_one,
    Draw.SPARSE: _sparse,
    Draw.OFFSET: _offset,
}


_MILD_KINDS = (Draw.NORMAL, Draw.NEAR_ONE, Draw.SPARSE)


def _has_few_values(values: torch.Tensor) -> bool:
    """Whether the values come from a small set, as labels of -1 and 1 do, or masks of zeros and infinities."""
    if values.numel() <= _FEW_VALUES:
        return False
    sample = values.reshape(-1)[:_SAMPLED]
    return len(set(sample.tolist())) <= _FEW_VALUES and len(torch.unique(values)) <= _FEW_VALUES


def _sums_to_one(values: torch.Tensor) -> bool:
    if values.dim() == 0 or values.shape[-1] < 2 or bool((values < 0).any()):
        return False
    return bool(((values.sum(-1) - 1).abs() < _ONES_TOLERANCE).all())


def _keeping_structure(declared: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """The drawn values with the declared tensor's symmetry and exact zeros (triangles, padding, dropped values)."""
    if declared.dim() >= 2 and declared.shape[-1] == declared.shape[-2] > 1 and torch.equal(declared, declared.mT):
        drawn = drawn.tril() + drawn.tril(-1).mT
    zeros = declared == 0
    if int(zeros.sum()) * 100 > declared.numel():
        drawn = drawn.masked_fill(zeros, 0.0)
    special = ~torch.isfinite(declared)
    return torch.where(special, declared, drawn)
