"""What answers and inputs of a task hold: rows, special values, integers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.tasks.input_draws import is_drawn_as_integers
from weir.kernel_eval.tasks.input_variants import Draw

_PIECE = 1 << 20  # elements that are looked at together


class Expected(NamedTuple):
    """The outputs of `Model` for one set of inputs, and its side effects on them."""

    outputs: list[torch.Tensor]
    changed_inputs: frozenset[int]  # by number, among tensors
    returns_input: bool


def is_integer(output: torch.Tensor) -> bool:
    """Whether it holds integers; booleans are none."""
    return is_drawn_as_integers(output) and output.dtype is not torch.bool


def may_pick(draw: Draw, expected: Expected, *, by_value: bool) -> bool:
    """Whether a hard draw may have several right answers: positions of one of equal values, integers of huge ones."""
    hard = (Draw.BEYOND, Draw.EDGES, Draw.POINTS, *(() if by_value else (Draw.HARD,)))
    return draw in hard and any(map(is_integer, expected.outputs))


def is_finite(outputs: list[torch.Tensor]) -> bool:
    """Whether no value of them is NaN or infinite."""
    return all(bool(torch.isfinite(output).all()) for output in outputs)


def largest(outputs: list[torch.Tensor]) -> float:
    """The largest magnitude among floats, but for NaN and infinities; 0 if there is none."""
    floats = (output.reshape(-1) for output in outputs if output.is_floating_point() and output.numel())
    pieces = (piece.nan_to_num(0.0, 0.0, 0.0) for output in floats for piece in torch.split(output, _PIECE))
    return max((float(piece.abs_().max()) for piece in pieces), default=0.0)


def by_pieces(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """What a function that works value by value makes of tensors of one shape: of few elements at a time."""
    first = tensors[0]
    if first.numel() <= _PIECE:
        return function(*tensors)
    pieces = zip(*(torch.split(tensor.reshape(-1), _PIECE) for tensor in tensors), strict=True)
    return torch.cat([function(*parts) for parts in pieces]).view(first.shape)


def part_of(value: Any, shape: torch.Size, at: Any) -> Any:
    """The rows of an argument that belong to rows of an answer of this shape; one of another shape stays."""
    return value[at] if isinstance(value, torch.Tensor) and value.shape == shape else value


def replaced(value: Any, by: Any, where: torch.Tensor) -> Any:
    """An argument with the elements of another at some places; one of another shape stays."""
    if not isinstance(value, torch.Tensor) or value.shape != where.shape or not value.is_floating_point():
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(torch.where(where, by, value))


def specials(output: torch.Tensor) -> torch.Tensor:
    """Its NaN and infinities; numbers are zeros. A NaN is a 2."""
    parts = torch.view_as_real(output) if output.is_complex() else output
    return by_pieces(_specials, parts)


def _specials(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values.isnan(), 2, torch.where(values.isinf(), values.sign(), 0)).to(torch.int8)


def integers_among(value: Any) -> list[torch.Tensor]:
    """The tensors of integers and booleans among inputs, in order."""
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in integers_among(item)]
    return [value] if is_drawn_as_integers(value) else []


def num_floating(value: Any) -> int:
    """How many tensors of floats there are among inputs."""
    if isinstance(value, list | tuple):
        return sum(map(num_floating, value))
    return int(isinstance(value, torch.Tensor) and value.is_floating_point())


def far_apart(one: torch.Tensor, two: torch.Tensor, share: float = 100.0) -> torch.Tensor:
    """Where two answers differ by a hundredth, or one of `share`, of what is usual in the first, or more.

    NaN and infinities are zeros.
    """
    if not one.is_floating_point():
        return by_pieces(lambda first, second: first != second.to(first.dtype), one, two)
    squares = sum(float(_finite(piece).square_().sum()) for piece in torch.split(one.reshape(-1), _PIECE))
    usual = math.sqrt(squares / max(1, one.numel()))

    def are_far(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        first, second = _finite(first), _finite(second)
        return second.sub_(first).abs_() > first.abs_().add_(usual).div_(share)

    return by_pieces(are_far, one, two)


def _finite(values: torch.Tensor) -> torch.Tensor:
    """A copy in float64, with zeros for NaN and infinities."""
    return values.to(torch.float64, copy=True).nan_to_num_(0.0, 0.0, 0.0)
