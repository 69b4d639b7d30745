"""Adds to inputs that a task has accepted what it accepts besides: whatever else its function is defined for.

A draw is for all inputs at once, so that one input that must be positive would make all others positive too; draws are
of usual scales, and hold no row of zeros. Each step here changes one thing. A step that the task refuses (an error, an
answer that cannot be compared) is not tried again. Which steps there are follows from the inputs, and from what the
task's operators do with them (`found.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from weir.kernel_eval.tasks.changing import (
    Change,
    Step,
    beside_values,
    changing,
    each_tensor,
    floats_among,
    integers_of,
    is_drawn,
    of_scale,
    redrawing,
    together,
    with_values,
)
from weir.kernel_eval.tasks.draws.constant_inputs import is_constant, replacements
from weir.kernel_eval.tasks.draws.equal_values import (
    with_extremes_again,
    with_extremes_twice,
    with_repeats,
    with_values_of,
)
from weir.kernel_eval.tasks.draws.integer_draws import (
    Integers,
    above_zero,
    asked_for,
    even,
    left_out,
    lone,
    other_single,
    outside,
    reordered,
    rows_of_asked,
    shift_counts,
    widened,
    with_moved_integers,
    with_one_each,
    without_zeros,
)
from weir.kernel_eval.tasks.draws.matches import beside
from weir.kernel_eval.tasks.draws.one_sided import one_sided
from weir.kernel_eval.tasks.draws.python_numbers import other_but_zeros, other_numbers, other_whole
from weir.kernel_eval.tasks.draws.regions import (
    keeping_regions,
    with_far_rows,
    with_held_states,
    with_pieces_of_one_sign,
)
from weir.kernel_eval.tasks.draws.together import (
    are_alike,
    with_far_squares,
    with_far_sums,
    with_lone_nans,
)
from weir.kernel_eval.tasks.extremes import (
    aligned,
    may_change,
    with_far_extremes,
    with_moved_extremes,
    with_rows_in_order,
)
from weir.kernel_eval.tasks.found import Found
from weir.kernel_eval.tasks.input_draws import (
    sums_to_one,
    with_specials,
)
from weir.kernel_eval.tasks.input_variants import OF_ONE_KIND, OF_OWN, SPECIAL, Draw
from weir.kernel_eval.tasks.own_draws import of_even_columns, of_few_values, of_own, of_zero_rows
from weir.kernel_eval.tasks.rows import (
    with_ends,
    with_nan_row,
    with_one_sign,
    with_tiny_columns,
    with_tiny_rows,
    with_zero_columns,
    with_zero_rows,
    with_zero_tiles,
)

_SHARE = 16  # one of so many rows or elements is replaced
_BY_INPUT = (Draw.HARD, Draw.MIXED, Draw.MILD, Draw.NORMAL)  # the hardest first
_OF_ALL = frozenset({Draw.EDGES, Draw.POINTS, Draw.BEYOND, Draw.SPECIAL, Draw.NANS, Draw.INFINITE, Draw.HARD})
_TWICE, _FAR_LARGER = 2.0, 8.0  # times the largest value of an answer, beside which others are seen still
_FARTHER = 150.0  # beyond other values: an exponential overflows
_NEAR_TIMES = 4  # as large as the task's own integers
_MOST_COMPARED = 4  # inputs, each with each other
_WIDE = 1e30  # what half precision does not hold
_MANY_ROWS = 1 << 9  # in one of so many, extremes occur twice where more would leave too much open
_SIGNS = ((-1, 1), (1,), (-1,))  # of regions of one sign; a task may refuse one of them
_ENDS = ((0, -1), (0,), (-1,))  # of rows of one value: the least, the largest, or both


def steps_across(inputs: list[Any], drawn: Draw, found: Found) -> Iterator[list[Step]]:
    """The steps for inputs that are not of a mixed draw: along all dimensions but the last, and tiny rows of few.

    A column of zeros is in each row, so that none of a mixed draw's could have only values below zero. Of few rows a
    mixed draw has too few for each kind of mask to have one.
    """
    if drawn is Draw.STRUCTURED:
        yield from _of_structure(inputs, found)
        return
    if drawn is Draw.PLACED:
        for at in floats_among(inputs):
            yield from _of_extremes(at, across=True, is_usual=True)
        return
    if drawn in OF_OWN and drawn is not Draw.DECLARED:
        yield from of_own(inputs, drawn, found)
        return
    yield from _of_few_masks(inputs, found)
    if drawn in OF_ONE_KIND:
        return
    yield from of_zero_rows(inputs, found, few=True)
    yield from of_even_columns(inputs, found)  # beside rows of other values none would be even
    for at, tensor in enumerate(each_tensor(inputs)):
        if not is_drawn(tensor):
            continue
        yield from _of_extremes(at, across=True)
        if found.ties:
            yield from _of_products(inputs, at, found)
            continue
        if _has_few_rows(tensor):  # of which a mixed draw has one
            tiny = functools.partial(with_tiny_rows, added=found.added)
            yield [Step(("tiny", at), changing(at, tiny), sensitive=found.whole, most=_TWICE)]
        for dimension in range(tensor.dim() - 1):
            zeros = functools.partial(with_zero_columns, dimension=dimension)
            yield [Step((f"zeros {dimension}", at), changing(at, zeros), sensitive=found.whole)]
        for dimension in range(tensor.dim() - 1):
            signs = functools.partial(with_one_sign, dimension=dimension)
            yield [Step((f"signs {dimension}", at), changing(at, signs), sensitive=found.whole)]
        for dimension in range(tensor.dim() - 1):
            tiny = functools.partial(with_tiny_columns, dimension=dimension, added=found.added)
            yield [Step((f"tiny {dimension}", at), changing(at, tiny), sensitive=found.whole, most=_TWICE)]
        yield from _of_products(inputs, at, found)


def steps(inputs: list[Any], drawn: Draw, found: Found) -> Iterator[list[Step]]:
    """The steps for inputs of a mixed draw; of each list, the first that the task accepts is enough."""
    for choices in itertools.chain(
        _of_constants(inputs, found),
        _of_floats(inputs, drawn, found),
        of_few_values(inputs),
        _of_order(inputs, found),
        _of_wider(inputs, found),
        _of_whole_rows(inputs, drawn, found),
        _of_guarded(inputs, found),
        _of_ordered(inputs, found),
        _of_pairs(inputs, found),
        _of_several(inputs, found),
    ):
        yield [step._replace(sensitive=step.sensitive or (found.whole and not step.exact)) for step in choices]


def _of_structure(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """The steps for the task's own floats: what holds one value, masks and integers are others, of usual size.

    Beside the values of a mixed draw, which may be large, a row that a mask hides seldom counts, nor does a bias.
    """
    yield from itertools.chain(_of_constants(inputs, found), of_few_values(inputs), _of_order(inputs, found))
    yield from _of_whole_rows(inputs, Draw.STRUCTURED, found)
    yield from _of_ordered(inputs, found)


def _of_constants(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    for at, tensor in enumerate(each_tensor(inputs)):
        if is_constant(tensor):
            yield [Step((f"constant {name}", at), changing(at, change)) for name, change in replacements(tensor)]
    if any(isinstance(value, float) for value in tree_leaves(inputs)):
        yield [Step(("numbers", 0), other_numbers), Step(("numbers but zeros", 0), other_but_zeros)]
    most_dimensions = 0 if found.by_value else max((tensor.dim() for tensor in each_tensor(inputs)), default=0)
    for at, value in enumerate(tree_leaves(inputs)):
        if type(value) is int and value > most_dimensions:  # a smaller one may name a dimension
            yield [Step((f"whole {more:+}", at), functools.partial(other_whole, at, more)) for more in (1, -1)]


def _of_floats(inputs: list[Any], drawn: Draw, found: Found) -> Iterator[list[Step]]:
    tensors = list(each_tensor(inputs))
    floating = [at for at, tensor in enumerate(tensors) if is_drawn(tensor)]
    if drawn not in _OF_ALL and len(floating) > 1:
        for at in floating:
            draws = [draw for draw in _BY_INPUT[found.ties or found.whole :] if draw is not drawn]
            yield [Step((draw.value, at), changing(at, redrawing(draw))) for draw in draws]
    in_one_alone = found.specials and not found.ties and drawn not in SPECIAL and len(floating) > 1
    for at in floating if in_one_alone else ():
        yield [Step((draw.value, at), changing(at, redrawing(draw))) for draw in found.specials]
    for at in floating:
        if found.ties and not found.by_value:
            yield from _of_regions(tensors[at], at, by_value=False)
            yield from _of_extremes(at, across=False)
            yield from _of_products(inputs, at, found)
        if found.ties:  # which may be of no account, if values are chosen and not positions
            yield [Step(("repeats", at), changing(at, with_repeats), sensitive=not found.stable, exact=found.stable)]
            if not found.stable:  # in few rows, so that a kernel may take either
                fewer = functools.partial(with_extremes_twice, fewer=_MANY_ROWS)  # beside scores that underflow
                kinds = (("extremes twice", with_extremes_twice), ("fewer extremes twice", fewer))
                yield [Step((name, at), changing(at, change), exact=True) for name, change in kinds]
            yield from _beside_ties(at, found)
            continue
        if drawn is not Draw.EDGES:  # which has zeros and ones
            is_second = at != floating[0]  # whose rows may lie where the first one's do
            yield [Step(("zeros", at), changing(at, with_zero_rows), steady=is_second)]
            yield [Step(("zero tiles", at), changing(at, with_zero_tiles), steady=is_second)]
            tiny = functools.partial(with_tiny_rows, added=found.added)
            yield [Step(("tiny", at), changing(at, tiny), most=_TWICE)]
            yield [Step(("signs", at), changing(at, functools.partial(with_one_sign, dimension=-1)))]
        if drawn is not Draw.EDGES or sums_to_one(tensors[at]):
            yield [Step(("ends", at), changing(at, with_ends))]
        yield from _of_regions(tensors[at], at, found.by_value)
        if not found.by_value:
            yield from _of_extremes(at, across=False)
        for scale in found.scales:
            scaled = [("scale", of_scale(scale)), ("beyond", of_scale(scale, beyond=True))][: 1 + found.whole]
            yield [Step((f"{name} {scale:g}", at), changing(at, one), sensitive=True) for name, one in scaled]
        if found.matches and not sums_to_one(tensors[at]):
            yield [Step(("extremes", at), changing(at, with_extremes_again), exact=True)]
        if found.values:
            yield [Step(("values", at), changing(at, with_values(found.values)))]
            beside = beside_values(found.values)
            if beside and torch.finfo(tensors[at].dtype).max > _WIDE:
                yield [Step(("beside", at), changing(at, with_values(beside)), most=_FAR_LARGER)]
        if drawn in SPECIAL and Draw.SPECIAL in found.specials:
            yield [Step(("NaN row", at), changing(at, with_nan_row))]
        if not found.by_value:
            yield from _of_products(inputs, at, found)


def _beside_ties(at: int, found: Found) -> Iterator[list[Step]]:
    """What is asked of a task that may take any of equal values, as far as its answer is the same for each of them."""
    for scale in found.scales:
        yield [Step((f"scale {scale:g}", at), changing(at, of_scale(scale)), sensitive=True, settled=True)]
    specials: list[tuple[str, Change]] = [
        (draw.value, functools.partial(with_specials, draw)) for draw in found.specials
    ]
    values: list[tuple[str, Change]] = [("values", with_values(found.values))] if found.values else []
    for choices in (specials, values, [("zeros", with_zero_rows)]):
        yield [Step((name, at), changing(at, change), settled=True) for name, change in choices]


def _of_regions(tensor: torch.Tensor, at: int, by_value: bool) -> Iterator[list[Step]]:
    """Pieces of one sign, rows far from zero, states that are held: by a loop over steps that works value by value."""
    if tensor.dim() < 2 or tensor.shape[-1] < 2 or not may_change(tensor):
        return
    for name, change in () if by_value else (("pieces", with_pieces_of_one_sign), ("far rows", with_far_rows)):
        yield [
            Step((f"{name} {signs}", at), changing(at, functools.partial(change, signs=signs)), most=_FAR_LARGER)
            for signs in _SIGNS
        ]
    if tensor.dim() > 2:
        change = functools.partial(keeping_regions, with_held_states)
        yield [Step(("held", at), changing(at, change), most=_FAR_LARGER)]


def _of_extremes(at: int, across: bool, *, is_usual: bool = False) -> Iterator[list[Step]]:
    """Extremes of rows at chosen places.

    `across`: along all dimensions; else along the last ones, so that no row becomes larger than it is. `is_usual`:
    none is so far beyond others that an exponential overflows.
    """
    far = functools.partial(with_far_extremes, across=across)
    kinds: list[tuple[str, Change]] = [
        *(() if is_usual else (("farther extremes", functools.partial(far, farther=_FARTHER)),)),
        ("far extremes", far),
        ("far largest", functools.partial(far, least=False)),
        ("far least", functools.partial(far, largest=False)),
        ("moved extremes", functools.partial(with_moved_extremes, across=across)),
    ]
    yield [
        Step((name, at), changing(at, functools.partial(_beside_order, change, across)), most=_FAR_LARGER)
        for name, change in kinds
    ]


def _of_products(inputs: list[Any], at: int, found: Found) -> Iterator[list[Step]]:
    """The rows of a weight, which make extremes of a product, and rows whose products are all of one sign.

    After all else, since one other value among them may end that.
    """
    tensors = list(each_tensor(inputs))
    for number, other in enumerate((*found.weights, *tensors) if found.hides_products else ()):
        change = aligned(tensors[at], other) if other.is_floating_point() else None
        if change is not None:
            yield [Step((f"rows of {number}", at), changing(at, functools.partial(keeping_regions, change)))]
        change = one_sided(tensors[at], other) if other.is_floating_point() else None
        if change is not None:
            yield [Step((f"one sign of {number}", at), changing(at, change))]


def _beside_order(change: Change, across: bool, value: torch.Tensor) -> torch.Tensor:
    """Columns in order first, since they hold elements of all rows; rows last, since a change may lie in one."""
    columns = with_rows_in_order(value, range(value.dim() - 1)) if across else value
    return with_rows_in_order(change(columns), (-1,))


def _of_order(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Integers in another order than the task's own draws all have."""
    for at, seen in integers_of(inputs, found.integers):
        change_order = functools.partial(reordered, seen=seen, only_computes=found.only_computes)
        yield [Step(("another order", at), changing(at, change_order))]
        if found.adds and seen.distinct and not seen.sorted:  # places of a permutation, at which a sum is a copy
            yield [Step(("places", at), changing(at, with_repeats))]


def _of_wider(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Integers beyond the range of the task's own draws, where it only computes with them."""
    for number, (at, seen) in enumerate(integers_of(inputs, found.integers) if found.only_computes else ()):
        if number in found.shifts:
            counts = functools.partial(shift_counts, seen=seen, width=found.shifts[number])
            yield [Step(("shifts", at), changing(at, counts))]
            continue
        if number in found.compared:
            asked = functools.partial(asked_for, numbers=found.bounds.get(number, ()))
            yield [Step(("bounds", at), changing(at, asked))]
            continue
        change = functools.partial(widened, seen=seen, pointwise=found.pointwise)
        kinds: list[tuple[str, Change]] = [
            ("integers", change),
            ("no zeros", lambda value, change=change: without_zeros(change(value))),  # type: ignore[misc]
            ("above zero", lambda value, change=change: above_zero(change(value))),  # type: ignore[misc]
            ("near integers", functools.partial(change, times=_NEAR_TIMES)),
        ]
        # the sine of a large one is anything
        yield [Step((name, at), changing(at, change), sensitive=True) for name, change in kinds]
        if not found.pointwise:
            moved = functools.partial(with_moved_integers, seen=seen)
            yield [Step(("moved integers", at), changing(at, moved))]


def _of_whole_rows(inputs: list[Any], drawn: Draw, found: Found) -> Iterator[list[Step]]:
    """Rows of integers that hold one value, or but at one place; single ones; values that occur nowhere."""
    tensors = list(each_tensor(inputs))
    for order, (at, seen) in enumerate(integers_of(inputs, found.integers)):
        zeros = (seen.values[1:-1] == 0).nonzero().flatten() + 1  # between negative and positive ones
        for kinds in (_ENDS, *[(zero,) for zero in zip(zeros.tolist(), strict=True)]):
            changes = [(f"even {ends}", functools.partial(even, seen=seen, ends=ends)) for ends in kinds]
            yield [Step((name, at), changing(at, change)) for name, change in changes]
        for end in (0, -1):
            yield [Step((f"lone {end}", at), changing(at, functools.partial(lone, seen=seen, end=end)))]
        for number in found.asked if order in found.equal else ():
            asked = functools.partial(rows_of_asked, seen=seen, number=number)
            yield [Step((f"rows of {number}", at), changing(at, asked))]
        if tensors[at].numel() == 1:
            numbers = [*(found.asked if order in found.equal else ()), *sorted(found.bounds.get(order, ()))]
            yield [Step(("single", at), changing(at, functools.partial(other_single, numbers=numbers)))]
        if not found.only_computes:
            left = functools.partial(left_out, seen=seen, asked=found.asked if drawn is Draw.STRUCTURED else ())
            yield [Step(("left out", at), changing(at, left))]


def _of_guarded(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Integers that the task asks for."""
    tensors = list(each_tensor(inputs))
    for number, (at, seen) in enumerate(() if found.only_computes else integers_of(inputs, found.integers)):
        guarded = [] if seen.sorted else outside(seen, found.bounds.get(number, ()))  # offsets begin where they do
        beside = functools.partial(with_one_each, seen=seen, numbers=sorted(found.bounds.get(number, ())))
        yield [Step(("beside bounds", at), changing(at, beside))]
        for beyond in guarded:
            yield [Step((f"guarded {beyond}", at), changing(at, functools.partial(asked_for, numbers=(beyond,))))]
    for number, (at, _) in enumerate(integers_of(inputs, found.integers) if found.asked else ()):
        if number in found.equal and tensors[at].dtype is not torch.bool:
            yield [Step(("asked", at), changing(at, functools.partial(asked_for, numbers=found.asked)))]


def _of_ordered(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Integers beside those that they are compared with; the last pairs count, where one integer is in several."""
    integers = integers_of(inputs, found.integers)
    for one, two in found.ordered[:_MOST_COMPARED]:
        (at, seen), (of, its) = integers[one], integers[two]
        choices = [(at, of, seen), (of, at, its)]
        yield [Step((f"beside {b}", a), functools.partial(_beside, a, b, known)) for a, b, known in choices]


def _beside(at: int, of: int, seen: Integers, inputs: list[Any]) -> list[Any]:
    other = list(each_tensor(inputs))[of]
    return changing(at, functools.partial(beside, other=other, seen=seen))(inputs)


def _of_few_masks(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Masks of few rows: in each call another row has one element alone that is not as the others."""
    tensors = list(each_tensor(inputs))
    for at, seen in integers_of(inputs, found.integers):
        for end in (0, -1) if _has_few_rows(tensors[at]) else ():
            yield [Step((f"lone {end}", at), changing(at, functools.partial(lone, seen=seen, end=end)))]


def _has_few_rows(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 0 and tensor.numel() < _SHARE * tensor.shape[-1]


def _of_pairs(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Values that two inputs share, where a task compares some, and those that an input shares with a parameter."""
    tensors = list(each_tensor(inputs))
    for (number, level), at in itertools.product(enumerate(found.levels), floats_among(inputs)[:_MOST_COMPARED]):
        shape, own = tensors[at].shape, level.shape
        if len(own) <= len(shape) and all(one in (1, two) for one, two in zip(own[::-1], shape[::-1], strict=False)):
            level = level.detach().expand(shape)
            yield [
                Step((f"level {number}", at), changing(at, functools.partial(with_values_of, other=level)), exact=True)
            ]
    if not found.decides:
        return
    for one, two in itertools.combinations(floats_among(inputs)[:_MOST_COMPARED], 2):
        yield [
            Step((f"shared {a}", b), functools.partial(_shared, a, b), exact=True) for a, b in ((one, two), (two, one))
        ]


def _of_several(inputs: list[Any], found: Found) -> Iterator[list[Step]]:
    """Changes of all inputs together."""
    tensors, places = list(each_tensor(inputs)), floats_among(inputs)
    yield from of_zero_rows(inputs, found, few=False)
    if found.ties or not are_alike([tensors[at] for at in places]):
        return
    if found.lone_nans:
        yield [Step(("lone NaN", 0), functools.partial(together, places, with_lone_nans))]
    if found.by_value and torch.finfo(tensors[places[0]].dtype).max > _WIDE:
        for name, change in (("far squares", with_far_squares), ("far sums", with_far_sums)):
            yield [Step((name, 0), functools.partial(together, places, change), sensitive=True)]


def _shared(source: int, at: int, inputs: list[Any]) -> list[Any]:
    other = list(each_tensor(inputs))[source]
    return changing(at, functools.partial(with_values_of, other=other))(inputs)
