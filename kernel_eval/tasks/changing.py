"""Changes of tensors among the inputs of a call, which are named by their numbers, and the steps that make them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only

from weir.kernel_eval.tasks.draws.constant_inputs import is_constant, replacements
from weir.kernel_eval.tasks.draws.equal_values import in_form_of, is_sorted
from weir.kernel_eval.tasks.draws.integer_draws import Integers
from weir.kernel_eval.tasks.draws.places import holding
from weir.kernel_eval.tasks.draws.small_values import least_scale, made_small, scales
from weir.kernel_eval.tasks.input_draws import (
    has_few_values,
    is_drawn_as_integers,
    redrawn,
    slices,
    structure_of,
    sums_to_one,
    unsliced,
)
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.rows import spare

_SHARE = 16  # one of so many slices is replaced
_FAR_VALUE, _LESS, _LEAST = 1e5, 0.75, 1e-30  # beyond usual draws; so many times a value; a number that is not zero
_OTHER_DRAWS = (1, 2)  # of a task's own
_HALF_RANGE = 1e3  # of what half precision holds, in the scales of values

Change = Callable[[torch.Tensor], torch.Tensor]


class Step(NamedTuple):
    """One change of inputs.

    `sensitive`: whether a rounding may decide what the task answers to it; `alike`: one that keeps equal inputs equal ·
    `exact`: none does, since inputs themselves are compared · `most`: it is left out where an answer becomes so many
    times larger that others of it do not count · `settled`: which of equal values is taken must not change the answer ·
    `steady`: roundings must hardly change it, as they do what is left of two sums that are equal.
    """

    name: tuple[str, int]
    apply: Callable[[list[Any]], list[Any]]
    sensitive: bool = False
    alike: bool = False
    exact: bool = False
    most: float = math.inf
    settled: bool = False
    steady: bool = False


def each_tensor(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from each_tensor(item)
    elif isinstance(value, torch.Tensor):
        yield value


def masks_among(inputs: list[Any], integers: Sequence[Integers]) -> Iterator[tuple[int, Integers | None]]:
    """Masks, by their number among the inputs' tensors, and what is known of them if they are no floats."""
    known = iter(integers)
    for at, tensor in enumerate(each_tensor(inputs)):
        seen = next(known, None) if is_drawn_as_integers(tensor) else None
        if _is_mask(tensor, seen):
            yield at, seen


def hides(value: torch.Tensor, seen: Integers | None) -> bool:
    """Whether a tensor is a mask of which zero is a value that it may have anywhere."""
    is_free = seen is None or not bool(seen.fixed.any())
    return is_free and _is_mask(value, seen) and bool((value == 0).any())


def _is_mask(value: torch.Tensor, seen: Integers | None) -> bool:
    """Whether a tensor has two values, either of which it may hold everywhere."""
    if value.numel() < 2 or value.is_complex():
        return False
    if not value.is_floating_point():
        if seen is None or seen.sums_are_fixed or seen.distinct or seen.symmetric or bool(seen.fixed.all()):
            return False
        return len(seen.values) == 2 and value.shape == seen.fixed.shape
    return has_few_values(value) and not is_constant(value) and not sums_to_one(value) and len(torch.unique(value)) == 2


def is_drawn(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 1 and not has_few_values(tensor)


def integers_of(inputs: list[Any], known: Sequence[Integers]) -> list[tuple[int, Integers]]:
    """Tensors of integers, by their number among all, and what is known of them."""
    integers = [at for at, tensor in enumerate(each_tensor(inputs)) if is_drawn_as_integers(tensor)]
    return list(zip(integers, known, strict=False))


def structured(inputs: list[Any], draw: Callable[[int], list[Any]]) -> frozenset[int]:
    """The tensors of floats, by number, that are symmetric or have zeros at the same places in each draw of a task's.

    `inputs`: of draw 0.
    """
    first = list(each_tensor(inputs))
    found = {at for at, one in enumerate(first) if is_drawn(one) and not is_constant(one) and structure_of(one)}
    for number in _OTHER_DRAWS if found else ():
        other = list(each_tensor(draw(number)))
        found = {at for at in found if _is_alike(first[at], other[at] if at < len(other) else None)}
    return frozenset(found)


def _is_alike(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether another draw has the zeros of a tensor, and is symmetric if that is."""
    if other is None or other.shape != one.shape or not torch.equal(one == 0, other == 0):
        return False
    return structure_of(other) is not None


def structures(inputs: list[Any], known: Sequence[Integers], of_task: frozenset[int]) -> dict[int, Change]:
    """What tensors, by number, have that changes keep: rows in order, symmetry, zeros.

    Bounds, offsets and the masks of padding are in order. `of_task`: the tensors that are `structured` as the task
    draws them.
    """
    found: dict[int, Change] = {at: seen.in_order for at, seen in integers_of(inputs, known) if seen.sorted}
    for at, tensor in enumerate(each_tensor(inputs)):
        keep = structure_of(tensor) if at in of_task and is_drawn(tensor) else None
        if keep is not None:
            found[at] = keep
        elif is_drawn(tensor) and is_sorted(tensor):
            found[at] = lambda value: value.sort(-1).values
    return found


def keeping(inputs: list[Any], structure: Mapping[int, Change]) -> list[Any]:
    """Inputs with what `structures` found."""
    for at, change in structure.items():
        inputs = changing(at, change)(inputs)
    return inputs


def floats_among(inputs: list[Any]) -> list[int]:
    """The tensors of floats that are drawn anew, by number."""
    return [at for at, tensor in enumerate(each_tensor(inputs)) if is_drawn(tensor) and not sums_to_one(tensor)]


def changing(at: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[list[Any]], list[Any]]:
    """The change of one tensor, by its number among the inputs' tensors."""

    def apply(inputs: list[Any]) -> list[Any]:
        numbers = iter(range(1 << 30))
        return [_with_change(value, numbers, at, change) for value in inputs]

    return apply


def together(
    places: Sequence[int], change: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]], inputs: list[Any]
) -> list[Any]:
    """Inputs in which some tensors, by their number, are changed together."""
    tensors = list(each_tensor(inputs))
    for at, changed in zip(places, change([tensors[at] for at in places]), strict=True):
        inputs = changing(at, functools.partial(_replaced, changed))(inputs)
    return inputs


def _replaced(by: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return by


def with_others_for_constants(inputs: list[Any]) -> list[Any]:
    """Inputs of usual size where they hold one value everywhere; others stay."""
    for at, tensor in enumerate(each_tensor(inputs)):
        if is_constant(tensor):
            choices = replacements(tensor)
            usual = next((change for name, change in choices if name == "shifted"), choices[-1][1])
            inputs = changing(at, usual)(inputs)
    return inputs


def _with_change(value: Any, numbers: Iterator[int], at: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_with_change(item, numbers, at, change) for item in value)
    if not isinstance(value, torch.Tensor) or next(numbers) != at:
        return value
    changed = change(value)
    if changed is value:
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(in_form_of(changed, value))


def of_scale(scale: float, *, beyond: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    """Some rows are of a scale; `beyond`: all values of these are tenfold, so that none is near what bounds them."""

    def change(value: torch.Tensor) -> torch.Tensor:
        if scale * _HALF_RANGE > torch.finfo(value.dtype).max or sums_to_one(value):
            return value
        changed = slices(value)
        chosen = spare(changed, max(1, len(changed) // _SHARE))
        drawn = torch.randn_like(changed[chosen])
        changed[chosen] = (drawn + drawn.sign()) * (10 * scale) if beyond else drawn * scale
        return unsliced(changed, value)

    return change


def with_small_rows(inputs: list[Any], numbers: Sequence[float]) -> list[Any]:
    """Inputs whose floats are small: each row of its own scale, the same in all tensors that have rows as the largest.

    Other tensors, which may be added to each row, are as small as the smallest. In three dimensions or more, all rows
    of every other leading index have one scale, since what is made of them is as large as the largest. Masks of floats
    hide half of the rows: ones beside small values leave nothing that counts.
    """
    drawn = [tensor for tensor in each_tensor(inputs) if is_drawn(tensor) and not sums_to_one(tensor)]
    largest = max((tensor for tensor in drawn if not _is_symmetric(tensor)), key=torch.numel, default=None)
    rows = torch.Size() if largest is None else largest.shape[:-1]
    of_rows = scales(numbers, rows.numel()).view(*rows, 1)
    if len(rows) > 1:
        of_rows[::2] = scales(numbers, len(of_rows[::2])).view(-1, *(1 for _ in rows))
    hidden = (torch.randperm(rows.numel()) % 2 == 0).view(*rows, 1)

    def small(value: torch.Tensor) -> torch.Tensor:
        if value.shape[:-1] == rows and value.is_floating_point() and hides(value, None):
            return value.masked_fill(hidden.to(value.device), 0.0)
        if not is_drawn(value) or sums_to_one(value):
            return value
        own = value.shape[:-1] == rows and not _is_symmetric(value)
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return made.copy_(made_small(value, of_rows if own else least_scale(numbers)))

    return tree_map_only(torch.Tensor, small, inputs)  # type: ignore[no-any-return]


def _is_symmetric(value: torch.Tensor) -> bool:
    return value.dim() > 1 and value.shape[-1] == value.shape[-2] and torch.equal(value, value.mT)


def with_values(values: tuple[float, ...]) -> Change:
    """Some elements hold one of the values, as far as the dtype holds that exactly."""

    def change(value: torch.Tensor) -> torch.Tensor:
        narrow = torch.finfo(value.dtype).bits < 32  # kernels compare in float32 what torch compares in half precision
        held = [number for number in values if not narrow or float(torch.tensor(number, dtype=value.dtype)) == number]
        return holding(value, held, _SHARE)

    return change


def beside_values(values: tuple[float, ...]) -> tuple[float, ...]:
    """What is beside those values that a draw has nothing near: far ones, and zero."""
    far = [value * factor for value in values if abs(value) > _FAR_VALUE for factor in (_LESS, 1 / _LESS)]
    return (*far, *((-_LEAST, _LEAST) if 0.0 in values else ()))


def redrawing(draw: Draw) -> Change:
    """A new draw of a tensor."""

    def change(value: torch.Tensor) -> torch.Tensor:
        (drawn,) = redrawn([value], draw)
        return drawn  # type: ignore[no-any-return]

    return change
