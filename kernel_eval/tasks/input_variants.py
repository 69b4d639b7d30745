"""The variants of inputs in one evaluation: as the task makes them, drawn from another distribution, of another size.

The task's own draw often needs only a part of the function: all values of `torch.rand` are positive, small, and of one
scale. Other kinds of draws need the rest of it (`input_draws.py` makes them). If a size can be changed in the task's
module, one call gets inputs of another size, and one more of a size that torch's own tests have, if no block divides
the task's. Which call gets which variant follows from a secret seed. Pure; no torch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Draw(StrEnum):
    """How the values of floating-point inputs are drawn."""

    DECLARED = "declared"  # the task's own draw, from a seed of the evaluation
    MIXED = "mixed"  # many kinds, slice by slice, so that one call needs all of the function
    HARD = "hard"  # those, and slices of exact values; what a mixed draw is where the task allows it
    EDGES = "edges"  # those of a hard draw, edge points and large values, for tasks that work value by value
    POINTS = "points"  # those of a hard draw, and edge points, for tasks that are one operator
    AT_EDGES = "at_edges"  # where functions turn, saturate or end: around 0, 1 and what bounds the task sets
    LARGE = "large"  # 500 to 13,500: where functions are saturated
    BEYOND = "beyond"  # those, and slices of huge values, for tasks of one input that set bounds
    WIDE = "wide"  # normals of scale 30 to 100
    NEAR_ONE = "near_one"  # 1 and a little: products of many values stay of one size
    SPARSE = "sparse"  # almost zero but for few spikes: no part of a reduction can be left out
    OFFSET = "offset"  # normals around a large value
    SIGNED = "signed"  # each row of one sign: a zero is not the largest of those below it
    BELOW = "below"  # all values below zero: the largest of all is below it, too
    ABOVE = "above"  # all values above zero
    VANISHING = "vanishing"  # all values nearly zero: what is added to a divisor made of all of them counts
    STRUCTURED = "structured"  # the task's own floats, with other masks, integers, and values that are all one
    HIDDEN = "hidden"  # the task's own draw with masks that hold the lesser of two values everywhere,
    SHOWN = "shown"  # or the larger
    FADED = "faded"  # the task's own draw, all inputs nearly zero together, or zero
    MATCHED = "matched"  # the task's own draw with integers of few values, so that many are equal to others
    SURE = "sure"  # the task's own draw with rows of probabilities that are sure of one place, even, or equal to others
    RELATED = "related"  # the task's own draw with rows that equal, oppose or are near others
    PLACED = "placed"  # the task's own draw with extremes of rows at chosen places
    GROUPED = "grouped"  # the task's own draw with groups of rows, as an index has them, far from zero
    TURNED = "turned"  # the task's own draw, inputs changed as a whole: a number made of all of one decides otherwise
    CROWDED = "crowded"  # the task's own draw with nearly all rows alike, and integers: they go to one place
    TINY = "tiny"  # normals of scale 0.001 to 0.003: what is added to a divisor counts
    HUGE = "huge"  # normals of scale 1,000 to 10,000: beyond bounds that a task sets
    EXACT = "exact"  # whole numbers from -3 to 3: zeros, equal values, values at bounds
    MILD = "mild"  # slices of those kinds whose products, powers and exponentials stay finite
    NORMAL = "normal"  # normals of scale 1
    BOUNDED = "bounded"  # from -1 to 1, most of them near the ends
    POSITIVE = "positive"  # magnitudes of a mixed draw, above zero
    NEGATIVE = "negative"  # those below zero, as logarithms of probabilities are
    UNIT = "unit"  # from 0 to 1, most of them near the ends
    NEGATED = "negated"  # the task's own draw times minus one
    SCALED = "scaled"  # the task's own draw, slices of it times 1/4 to 4: keeps signs and zeros
    SPECIAL = "special"  # a hard draw with NaN, infinities and negative zeros among its values
    NANS = "nans"  # with NaN only
    INFINITE = "infinite"  # with infinities only


class Size(NamedTuple):
    """A size in a task's module, by name, and the value that it has for one call."""

    name: str
    value: int


class Variant(NamedTuple):
    """The change of one call's inputs relative to the result of `get_inputs`.

    `size_seed` asks for another size, with `any_size` for one that torch's own tests have; `size` is the one that was
    taken. `integers`: integers and booleans were drawn anew too. `number`: which of the draws of this kind it is.
    """

    draw: Draw = Draw.DECLARED
    size_seed: int | None = None
    any_size: bool = False
    size: Size | None = None
    integers: bool = False
    number: int = 0


PLAIN = Variant()
HARDEST = Variant(Draw.MIXED)
OF_ONE_KIND = frozenset({Draw.SIGNED, Draw.BELOW, Draw.ABOVE, Draw.VANISHING})  # rows, or all values
OF_MASKS = (Draw.HIDDEN, Draw.SHOWN)
OF_OWN = (
    Draw.DECLARED,
    Draw.STRUCTURED,
    Draw.FADED,
    Draw.CROWDED,
    Draw.PLACED,
    Draw.GROUPED,
    Draw.TURNED,
    Draw.RELATED,
    Draw.SURE,
    Draw.MATCHED,
    *OF_MASKS,
)  # floats are as the task draws them, then changed
# What is tried if the reference has no finite answer to a draw, for example a logarithm of negative numbers.
MILDER = (Draw.MILD, Draw.NORMAL, Draw.BOUNDED, Draw.POSITIVE, Draw.UNIT, Draw.NEGATIVE, Draw.NEGATED, Draw.SCALED)
# What is tried before a mixed draw, where the task names functions of special values, such as isnan.
SPECIAL = (Draw.SPECIAL, Draw.NANS, Draw.INFINITE)
_TESTED = (1, 3, 5, 10, 20)  # XS, S, M and L of OpInfo
_OTHERS = (Draw.WIDE, Draw.NEAR_ONE, Draw.SPARSE, Draw.OFFSET, Draw.NEGATED, Draw.DECLARED, Draw.MIXED)


def plan(
    num_calls: int,
    relaxed: frozenset[str],
    seed: int,
    *,
    few_rows: bool = False,
    more: Sequence[Draw] = (),
    any_size: bool = False,
) -> list[Variant]:
    """One variant for each call: the first plain, the second mixed, the others in an unpredictable order.

    With three calls or more, one of them has another size, unless the task relaxes that. `few_rows`: one call has tiny
    values only, since a mixed draw holds no row of them. `more`: the draws of more calls. `any_size`: there is one
    more, of a size that torch's own tests have.
    """
    generator = random.Random(seed)
    if "varied_inputs" in relaxed:
        draws = [Draw.DECLARED] * num_calls
    else:
        others = list(_OTHERS)
        generator.shuffle(others)
        others.sort(key=lambda draw: draw in (Draw.DECLARED, Draw.MIXED))  # first those with columns of zeros
        if few_rows:
            others.insert(0, Draw.TINY)
        draws = [Draw.DECLARED, Draw.MIXED, *(others[i % len(others)] for i in range(num_calls - 2))][:num_calls]
    variants = [Variant(draw) for draw in draws]
    if num_calls > 2 and "varied_shapes" not in relaxed:
        variants[2] = variants[2]._replace(size_seed=generator.getrandbits(63))
    if "varied_inputs" not in relaxed:
        variants += [Variant(draw, number=more[:at].count(draw)) for at, draw in enumerate(more)]
    if any_size and "varied_shapes" not in relaxed:
        draw = Draw.DECLARED if "varied_inputs" in relaxed else Draw.MIXED
        variants.append(Variant(draw, size_seed=generator.getrandbits(63), any_size=True))
    others_calls = variants[1:]
    generator.shuffle(others_calls)
    return variants[:1] + others_calls


def other_sizes(size: int, seed: int) -> list[int]:
    """Sizes to try in place of `size`, in an unpredictable order; smaller ones, since memory holds them.

    A power of two is replaced by smaller powers of two, other sizes by multiples of their largest power of two, so that
    a kernel whose blocks divide the size still fits.
    """
    unit = size & -size
    if unit == size:
        sizes = [size >> shift for shift in (1, 2) if size >> shift >= 1]
    else:
        sizes = [multiple for multiple in range(unit, size, unit) if 4 * multiple >= size] or [size // 2]
    random.Random(seed).shuffle(sizes)
    return sizes[:3]


def opinfo_sizes(size: int, seed: int) -> list[int]:
    """Sizes to try in place of one that a kernel masks, in an unpredictable order: those of OpInfo, and odd ones.

    None is empty: a launch of no program is no launch, and no kernel has a block for a row of no elements.
    """
    generator = random.Random(seed)
    some_odd = generator.randrange(size // 2 | 1, size + 1, 2)
    sizes = sorted({other for other in (*_TESTED, size - 1, some_odd) if 0 < other < size})
    generator.shuffle(sizes)
    return sizes[:3]
