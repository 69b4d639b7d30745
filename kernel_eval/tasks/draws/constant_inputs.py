"""Inputs that hold one value everywhere: other values for those of a task, and masks that become such for a call.

As a parameter that starts as ones (`varied_parameters.py`), a mask that hides nothing, a state of zeros, or full
lengths can be left out, and the answer stays right. Each tensor has several replacements, of which the first that its
task accepts is taken. Draws use torch's generator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from weir.kernel_eval.tasks.draws.integer_draws import Integers
from weir.kernel_eval.tasks.draws.places import distinct

_SHARE = 8  # one of so many elements of a mask is another
_SHIFT_SCALE = 0.5  # of what replaces zeros
_FAR = 1000.0
_LONE = 3.0  # doublings, or as often halved, of a lone number
_HALF = 0.5  # of as many: what there has to be enough of (frames for all labels)

Change = Callable[[torch.Tensor], torch.Tensor]


def is_constant(value: torch.Tensor) -> bool:
    """Whether the elements hold one number that others can replace.

    A lone integer or boolean is none: others replace it in its own way.
    """
    if value.numel() < (1 if value.is_floating_point() else 2) or value.is_complex():
        return False
    first = value.reshape(-1)[0]
    return bool((value == first).all())


def replacements(value: torch.Tensor) -> list[tuple[str, Change]]:
    """What a constant tensor can hold instead, by name."""
    if value.numel() == 1:
        return [("other", _other)]
    if value.dtype is torch.bool:
        return [("flipped", _flipped)]
    if not value.is_floating_point() and int(value.reshape(-1)[0]) < 0:
        return [("more", _more)]
    if not value.is_floating_point() and int(value.reshape(-1)[0]) <= 1:
        return [("other", _one_or_zero)]
    if not value.is_floating_point():
        return [("fewer", _fewer), ("a little fewer", functools.partial(_fewer, least=_HALF))]
    if math.isinf(float(value.reshape(-1)[0])):
        return [("finite", _finite)]
    if float(value.reshape(-1)[0]) == 0:
        return [("far", _far), ("shifted", _shifted), ("above zero", lambda zeros: _shifted(zeros).abs())]
    scaled = ("scaled", _scaled)
    return [("hidden", _hidden), scaled] if float(value.reshape(-1)[0]) == 1 else [scaled]


def _one_or_zero(value: torch.Tensor) -> torch.Tensor:
    """A mask, a type or a place: some ones among zeros, or some zeros among ones."""
    return torch.where(torch.rand(value.shape, device=value.device) < 1 / _SHARE, 1 - value, value)


def _more(value: torch.Tensor) -> torch.Tensor:
    """A place that is none, or a least number: as it is, or above it, up to one."""
    least = int(value.reshape(-1)[0])
    return torch.where(_few(value), value, torch.randint(least, 2, value.shape, device=value.device))


def _finite(value: torch.Tensor) -> torch.Tensor:
    """Half of them numbers of any size, as an extreme that is kept may be."""
    numbers = torch.randn(value.shape, device=value.device) * _FAR ** torch.rand(value.shape, device=value.device)
    return torch.where(torch.rand(value.shape, device=value.device) < _HALF, numbers.to(value.dtype), value)


def _other(lone: torch.Tensor) -> torch.Tensor:
    return torch.where(
        (lone == 0) | lone.isinf(), torch.randn_like(lone), lone * torch.exp2(_LONE * (2 * torch.rand_like(lone) - 1))
    )


def of_one_value(value: torch.Tensor, seen: Integers | None, largest: bool) -> torch.Tensor:
    """A mask that holds the larger of its two values, or the lesser, wherever the task's own draws do not agree.

    So all of a call is hidden, or nothing of it: rows of one value (`equal_values.py`) tell nothing of what is made of
    all rows, such as a mean over what a whole mask shows. `seen`: what is known of integers; if the task's own draws
    have rows that are hidden, all are.
    """
    values = torch.unique(value) if seen is None else seen.values
    filled = torch.full_like(value, values[-1 if largest else 0].item())
    if seen is None or (seen.has_least_rows and not largest):
        return filled
    return torch.where(seen.fixed.to(value.device), value, filled)


def of_one_label(value: torch.Tensor, label: int) -> torch.Tensor:
    """Integers that are all one of theirs, such as the label that a loss leaves out."""
    return torch.full_like(value, label)


def _few(like: torch.Tensor) -> torch.Tensor:
    """Some places, at least one of them, and not all."""
    few = torch.rand(like.shape, device=like.device) < 1 / _SHARE
    few.view(-1)[_two_of(few)] = torch.tensor([True, False], device=like.device)
    return few


def _two_of(value: torch.Tensor) -> torch.Tensor:
    """Two places, in any order."""
    return distinct(2, value.numel())[torch.randperm(2)].to(value.device)


def _flipped(value: torch.Tensor) -> torch.Tensor:
    return value ^ _few(value)


def _fewer(value: torch.Tensor, least: float = 0.0) -> torch.Tensor:
    """From one, or a part of as many, to as many; as many somewhere, and fewer somewhere."""
    most = int(value.reshape(-1)[0])
    least_of = min(max(1, math.ceil(least * most)), most - 1)
    fewer = torch.randint(least_of, most + 1, value.shape, device=value.device)
    fewer.view(-1)[_two_of(fewer)] = torch.tensor([most, int(torch.randint(least_of, most, ()))], device=value.device)
    return fewer


def _shifted(value: torch.Tensor) -> torch.Tensor:
    return torch.randn(value.shape, device=value.device) * _SHIFT_SCALE


def _far(value: torch.Tensor) -> torch.Tensor:
    """Shifted, and here and there so far, either way, that an extreme of it and of what is drawn is this one."""
    shifted = _shifted(value)
    far = _few(value).view(-1)
    signs = torch.randint(2, far.shape, device=value.device) * 2 - 1
    ends = _two_of(value)
    far[ends], signs[ends] = True, torch.tensor([-1, 1], device=value.device)
    flat = shifted.view(-1)
    flat[far] = ((flat.abs() + 1) * _FAR * signs)[far]
    return shifted


def _hidden(value: torch.Tensor) -> torch.Tensor:
    return value.masked_fill(_few(value), 0.0)


def _scaled(value: torch.Tensor) -> torch.Tensor:
    return value * (0.5 + torch.rand(value.shape, device=value.device))
