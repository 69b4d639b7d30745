"""The steps for a task's own floats where a call is of one kind: masks, crowds, probabilities, related rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from weir.kernel_eval.tasks.changing import (
    Step,
    changing,
    each_tensor,
    floats_among,
    hides,
    integers_of,
    masks_among,
    together,
)
from weir.kernel_eval.tasks.draws.constant_inputs import is_constant, of_one_label, of_one_value
from weir.kernel_eval.tasks.draws.crowds import at_one_place, with_like_rows
from weir.kernel_eval.tasks.draws.equal_values import with_even_rows
from weir.kernel_eval.tasks.draws.groups import names_groups, with_far_groups
from weir.kernel_eval.tasks.draws.integer_draws import even_across, left_out_labels
from weir.kernel_eval.tasks.draws.matches import matched
from weir.kernel_eval.tasks.draws.one_sided import one_sided
from weir.kernel_eval.tasks.draws.probabilities import with_equal_rows, with_sure_rows
from weir.kernel_eval.tasks.draws.relations import Relation, with_clusters, with_related_rows
from weir.kernel_eval.tasks.draws.together import are_alike, faded, with_zero_rows_together
from weir.kernel_eval.tasks.found import Found
from weir.kernel_eval.tasks.input_draws import has_few_values, sums_to_one
from weir.kernel_eval.tasks.input_variants import OF_MASKS, Draw

_MOST_RELATED = 4  # inputs
_STANDS = 0.9  # the cosine of two rows of which one stands to the other


def of_own(inputs: list[Any], drawn: Draw, found: Found) -> Iterator[list[Step]]:
    """The steps for a draw; none for one that another change might turn again."""
    if drawn in OF_MASKS:  # alone, since what hides all of a call hides whatever else is in it
        yield from _of_whole_masks(inputs, drawn, found)
    elif drawn is Draw.FADED:
        yield [Step(("faded", 0), functools.partial(together, floats_among(inputs), faded))]
    elif drawn is Draw.CROWDED:
        yield from _of_crowds(inputs, found)
    elif drawn is Draw.SURE:
        yield from _of_probabilities(inputs)
    elif drawn is Draw.RELATED:
        yield from _of_relations(inputs, found)
    elif drawn is Draw.GROUPED:
        yield from _of_groups(inputs, found)
    elif drawn is Draw.MATCHED:
        integers = dict(integers_of(inputs, found.integers))
        change = functools.partial(matched, known=list(integers.values()))
        yield [Step(("matched", 0), functools.partial(together, list(integers), change))]


def _of_whole_masks(inputs: list[Any], drawn: Draw, found: Found) -> Iterator[list[Step]]:
    """Masks that hide or show all of a call, and labels that leave all of it out.

    Where a task keeps what it counts of a mask from being zero, places are hidden that its own draws always show, too.
    """
    counted = {at for number, (at, _) in enumerate(integers_of(inputs, found.integers)) if number in found.counted}
    for at, seen in masks_among(inputs, found.integers):
        change = functools.partial(of_one_value, seen=seen, largest=drawn is Draw.SHOWN)
        known = [("", change)]
        if at in counted and seen is not None and drawn is Draw.HIDDEN:
            free = seen._replace(fixed=torch.zeros_like(seen.fixed))
            known.insert(0, (" counted", functools.partial(of_one_value, seen=free, largest=False)))
        yield [Step((drawn.value + name, at), changing(at, change), sensitive=True) for name, change in known]
    for at, seen in integers_of(inputs, found.integers) if drawn is Draw.HIDDEN else ():
        for label in left_out_labels(seen, found.asked):
            change = functools.partial(of_one_label, label=label)
            yield [Step((f"all {label}", at), changing(at, change), sensitive=True)]


def _of_probabilities(inputs: list[Any]) -> Iterator[list[Step]]:
    """Rows of probabilities, alone and as those of another input."""
    tensors = list(each_tensor(inputs))
    places = [at for at, tensor in enumerate(tensors) if tensor.is_floating_point() and sums_to_one(tensor)]
    for at in places:
        yield [Step(("sure", at), changing(at, with_sure_rows), sensitive=True)]
    if are_alike([tensors[at] for at in places]):
        yield [
            Step(("equal rows", 0), functools.partial(together, places, with_equal_rows), sensitive=True, alike=True)
        ]


def _of_crowds(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Rows alike, and integers, so that they go to one place."""
    tensors = list(each_tensor(inputs))
    for at in floats_among(inputs) if found.chooses else ():
        yield [Step(("like rows", at), changing(at, with_like_rows), sensitive=True)]
    for at, seen in () if found.only_computes else integers_of(inputs, found.integers):
        if tensors[at].dtype is not torch.bool:
            yield [Step(("one place", at), changing(at, functools.partial(at_one_place, seen=seen)))]


def _of_groups(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Groups of rows, as the first index has them that fits."""
    tensors = list(each_tensor(inputs))
    for at in floats_among(inputs):
        fitting = [
            tensors[of] for of, _ in integers_of(inputs, found.integers) if names_groups(tensors[of], tensors[at])
        ]
        for index in fitting[:1]:
            yield [Step(("far groups", at), changing(at, functools.partial(with_far_groups, index=index)))]


def _of_relations(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Rows that stand to others of their input, are near those of their label, or stand to those of other tensors."""
    tensors = list(each_tensor(inputs))
    places = [at for at in floats_among(inputs)[:_MOST_RELATED] if tensors[at].dim() > 1 and tensors[at].shape[-1] > 1]
    of_rows = {at: _labels(inputs, found, tensors[at]) for at in places}
    relations = [relation for relation in Relation if relation is not Relation.EQUAL or found.matches]
    widths = [tensors[at].shape[-1] for at in places]
    for at in places:
        is_paired = widths.count(tensors[at].shape[-1]) > 1  # beside opposite rows, none is on one side of all
        alone = [relation for relation in relations if relation is not Relation.OPPOSITE or not is_paired]
        yield _related(at, at, alone, labels=None)
    for of, at in ((of, at) for at, labelled in of_rows.items() for of in labelled):
        change = functools.partial(with_clusters, labels=tensors[of])
        yield [Step((f"clusters of {of}", at), changing(at, change), sensitive=True)]
    pairs = [pair for pair in itertools.combinations(places, 2) if _are_of_one_width(*(tensors[at] for at in pair))]
    for one, two in pairs:  # the last changes, or the one with more rows
        source, at = (one, two) if tensors[one].numel() <= tensors[two].numel() else (two, one)
        yield _related(at, source, relations, tensors[of_rows[at][0]] if of_rows[at] else None)
    for at, source in pairs:  # the other way round, too, rows would be on either side of each
        yield [Step((f"one side of {source}", at), functools.partial(_on_one_side, at, source), sensitive=True)]
    for at, weight in itertools.product(places, found.weights):
        if _are_of_one_width(tensors[at], weight) and weight.is_floating_point():
            yield _related(at, weight, relations, tensors[of_rows[at][0]] if of_rows[at] else None)


def _are_of_one_width(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.shape[-1] == two.shape[-1]


def _labels(inputs: list[Any], found: Found, value: torch.Tensor) -> list[int]:
    """The tensors of integers, by number, that have one for each row of a tensor."""
    tensors, num_rows = list(each_tensor(inputs)), value.numel() // value.shape[-1]
    integers = [of for of, _ in integers_of(inputs, found.integers)]
    return [of for of in integers if tensors[of].numel() == num_rows and tensors[of].dtype is not torch.bool]


def _related(at: int, source: int | torch.Tensor, relations: list[Relation], labels: torch.Tensor | None) -> list[Step]:
    """The step in which rows stand in all relations to those of an input or a parameter, then those of one each."""
    name = f"rows of {source}" if isinstance(source, int) else f"rows of {tuple(source.shape)}"
    return [
        Step(
            (f"{'-'.join(some)} to {name}", at), functools.partial(_standing, at, source, some, labels), sensitive=True
        )
        for some in (relations, *([relation] for relation in relations))
    ]


def _standing(
    at: int, source: int | torch.Tensor, relations: list[Relation], labels: torch.Tensor | None, inputs: list[Any]
) -> list[Any]:
    other = list(each_tensor(inputs))[source] if isinstance(source, int) else source
    change = functools.partial(with_related_rows, source=other, relations=relations, labels=labels)
    return changing(at, change)(inputs)


def _on_one_side(at: int, source: int, inputs: list[Any]) -> list[Any]:
    """Some rows of one input have products of one sign with all rows of another, which has so many rows at most.

    Rows that stand to those of the same number stay.
    """
    tensors = list(each_tensor(inputs))
    own, other = (
        torch.nn.functional.normalize(tensors[of].reshape(-1, tensors[of].shape[-1]).float(), dim=-1)
        for of in (at, source)
    )
    free = (own * other.to(own)).sum(-1).abs() < _STANDS if len(own) == len(other) else None
    change = one_sided(tensors[at], other, free) if len(other) <= other.shape[1] else None
    return inputs if change is None else changing(at, change)(inputs)


def of_zero_rows(inputs: list[Any], found: Found, *, few: bool) -> Iterator[list[Step]]:
    """Rows that are zero in all inputs, of many rows or of `few`: a mixed draw has none to spare of these."""
    tensors, places = list(each_tensor(inputs)), floats_among(inputs)
    masks = [at for at, seen in masks_among(inputs, found.integers) if hides(tensors[at], seen)]
    if not found.by_value and len(places) + len(masks) > 1:
        change = functools.partial(with_zero_rows_together, few=few)
        places = sorted({*places, *masks})
        yield [Step(("zeros", -1 - few), functools.partial(together, places, change), settled=True, steady=True)]


def of_few_values(inputs: list[Any]) -> Iterator[list[Step]]:
    """Rows of one value in masks of floats."""
    for at, tensor in enumerate(each_tensor(inputs)):
        if _has_kinds(tensor):
            least, most, *middle = _ends(tensor)
            for points in ([[least, most], [least], [most]], [middle] if middle else []):
                changes = [(f"even {each}", functools.partial(with_even_rows, points=each)) for each in points]
                yield [Step((name, at), changing(at, change)) for name, change in changes]


def of_even_columns(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Columns of one value in integers and masks, and whole pieces along the first dimension: zero, or the least."""
    for at, seen in integers_of(inputs, found.integers):
        for name, change in even_across(list(each_tensor(inputs))[at], seen):
            yield [Step((name, at), changing(at, change))]
    for at, tensor in enumerate(each_tensor(inputs)):
        if _has_kinds(tensor) and at not in found.structured:
            across = (("even columns", _with_even_columns), ("even pieces", _with_even_pieces))
            for name, made in across[: max(0, tensor.dim() - 1)]:
                least, _, *middle = _ends(tensor)
                yield [Step((name, at), changing(at, functools.partial(made, middle or [least])))]


def _has_kinds(tensor: torch.Tensor) -> bool:
    is_one = tensor.is_floating_point() and has_few_values(tensor) and not is_constant(tensor)
    return is_one and not sums_to_one(tensor)


def _ends(tensor: torch.Tensor) -> list[float]:
    """The least and the largest value, and zero where it is between them."""
    least, most = (float(end) for end in torch.aminmax(tensor))
    return [least, most, *([0.0] if least < 0 < most and bool((tensor == 0).any()) else [])]


def _with_even_columns(points: list[float], value: torch.Tensor) -> torch.Tensor:
    return with_even_rows(value.mT, points).mT


def _with_even_pieces(points: list[float], value: torch.Tensor) -> torch.Tensor:
    return with_even_rows(value.reshape(len(value), -1), points).view(value.shape)
