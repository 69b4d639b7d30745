"""Other values of lone numbers: of Python's among a task's inputs, and of tensors of one element.

A task may ask such a number which way to go (`if step < warmup`), which other draws of it seldom answer otherwise: they
stay near the task's own. What is tried lies at, below and above the numbers that the task itself holds. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

Number = bool | int | float
_TIMES = (1, 2, 10)  # a number that the task holds: it may ask for a multiple
_NEAR = 0.1  # of a float
_MOST_HELD = 24  # numbers of a task
_MOST_LEAVES, _MOST_FLAGS = 6, 6
_FEW = 16  # elements of a buffer of settings


def lone_numbers(inputs: list[Any]) -> list[tuple[int, Number]]:
    """The first of them, and flags, by their position among all leaves of the inputs, and their values."""
    found: list[tuple[int, Number]] = []
    for at, leaf in enumerate(tree_flatten(inputs)[0]):
        if isinstance(leaf, torch.Tensor) and leaf.numel() == 1 and not leaf.is_complex():
            found.append((at, leaf.item()))
        elif isinstance(leaf, bool | int | float):
            found.append((at, leaf))
    flags, others = ([one for one in found if isinstance(one[1], bool) == are_flags] for are_flags in (True, False))
    return [*others[:_MOST_LEAVES], *flags[:_MOST_FLAGS]]


def with_number(inputs: list[Any], at: int, number: Number) -> list[Any]:
    """Inputs with another number at one leaf."""
    leaves, form = tree_flatten(inputs)
    own = leaves[at]
    leaves[at] = torch.full_like(own, number) if isinstance(own, torch.Tensor) else type(own)(number)
    return tree_unflatten(leaves, form)  # type: ignore[no-any-return]


def held_numbers(written: Sequence[float], model: Any) -> list[float]:
    """The numbers that a task holds: those `written` in its code, then those of its model."""
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    kept = [value for module in modules for name, value in vars(module).items() if not name.startswith("_")]
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False) if buffer.numel() <= _FEW]
    listed = [item for value in kept if isinstance(value, list | tuple) for item in value]
    tensors = [item for buffer in buffers for item in buffer.flatten().tolist()]
    numbers = [float(n) for n in (*written, *kept, *listed, *tensors) if type(n) in (int, float)]
    return [number for number in dict.fromkeys(numbers) if math.isfinite(number)][:_MOST_HELD]


def others(own: Number, held: list[float]) -> Iterator[list[Number]]:
    """What to try in place of a number: for each number that the task holds, itself first, then what lies beside it.

    It is below zero only if it was, or if the task holds such a number.
    """
    if isinstance(own, bool):
        yield [not own]
        return
    for number in dict.fromkeys(times * one for times in _TIMES for one in held):
        if isinstance(own, int):
            near: list[Number] = [int(number), int(number) + 1, int(number) - 1]
        else:
            near = [number, number * (1 + _NEAR), number * (1 - _NEAR)]
        yield [one for one in near if one >= min(0.0, own, number)]
        if own < 0:
            yield [-one for one in near]
