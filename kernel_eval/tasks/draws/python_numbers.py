"""Other numbers in place of those of Python among a task's inputs. Draws use torch's generator."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

_ABOVE_ZERO = 0.05  # or more, and less than a half more, where a number is zero
_BOUND = 1.0  # in place of one that is infinite


def other_numbers(inputs: list[Any]) -> list[Any]:
    """Other floats in place of Python's; what is between 0 and 1 stays there, and zero comes there."""
    zero = _ABOVE_ZERO + float(torch.rand(())) / 2
    return tree_map_only(float, lambda value: _other_number(value) or zero, inputs)  # type: ignore[no-any-return]


def other_but_zeros(inputs: list[Any]) -> list[Any]:
    return tree_map_only(float, _other_number, inputs)  # type: ignore[no-any-return]


def other_whole(at: int, more: int, inputs: list[Any]) -> list[Any]:
    leaves, form = tree_flatten(inputs)
    leaves[at] += more
    return tree_unflatten(leaves, form)  # type: ignore[no-any-return]


def _other_number(value: float) -> float:
    if math.isinf(value):  # a bound that is none
        return math.copysign(_BOUND, value)
    factor = 0.5 + float(torch.rand(()))
    return value**factor if 0 < value < 1 else value * factor
