"""What is known of a task before its inputs are hardened: where it decides otherwise, and how it uses integers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.tasks.answers import is_integer
from weir.kernel_eval.tasks.changing import changing, each_tensor, is_drawn, of_scale, structured
from weir.kernel_eval.tasks.draws.integer_draws import Integers
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.input_draws import redrawn
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.task_source import decides, harder_than_mixed, sorts_stably, specials_of, takes_the_other
from weir.kernel_eval.tasks.watches.decisions import Decisions, Outcome
from weir.kernel_eval.tasks.watches.integer_use import IntegerUse


class Found(NamedTuple):
    """What is known of a task: where it decides otherwise, and how it uses integers.

    scales: at which it decides otherwise than at usual ones · values: which it asks inputs for (`x == 7`) · integers:
    what its draws show, by tensor · only_computes: it computes with them, and they say neither where something lies nor
    how much of it there is · pointwise: it works value by value · ties: it may take any of equal values · asked:
    integers that it compares its own with, or leaves out · adds: it adds at places that may repeat, stores at none ·
    decides: it compares values · chooses: an operator gives positions · whole: its answer has integers, which a
    rounding may change · matches: it asks which values are equal to others (`x == x.max()`) · compared: integers, by
    number, that have no place beyond their own range · bounds: what is beside the numbers that an order asks for, by
    integer · shifts: integers that say how far something is shifted, and the width of that · hides_products: its answer
    has fewer elements than a product of it · by_value: all of it works value by value · stable: a sort keeps the order
    of equal values · lone_nans: it takes the other value where one is NaN · weights: parameters of which inputs get
    rows, where products are hidden · levels: parameters and buffers that inputs may be compared with · specials: draws
    of special values that it names, such as NaN · added: small numbers that it adds, or takes as the least · orders: it
    asks which of two tensors is larger · ordered: integers, by number, of which it asks which is larger · counted:
    masks, by number, of which it makes a number that it keeps from being zero · placed: integers, by number, that say
    where something lies as they are · equal: those that are compared for equality · structured: floats, by number among
    all tensors, that are symmetric or have zeros.
    """

    scales: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    integers: tuple[Integers, ...] = ()
    only_computes: bool = False
    pointwise: bool = False
    ties: bool = False
    asked: tuple[int, ...] = ()
    adds: bool = False
    decides: bool = False
    chooses: bool = False
    whole: bool = False
    matches: bool = False
    compared: frozenset[int] = frozenset()
    bounds: Mapping[int, tuple[int, ...]] = {}
    shifts: Mapping[int, int] = {}
    hides_products: bool = False
    by_value: bool = False
    stable: bool = False
    lone_nans: bool = False
    weights: tuple[torch.Tensor, ...] = ()
    levels: tuple[torch.Tensor, ...] = ()
    added: tuple[float, ...] = ()
    specials: tuple[Draw, ...] = ()
    orders: bool = False
    ordered: tuple[tuple[int, int], ...] = ()
    counted: frozenset[int] = frozenset()
    equal: frozenset[int] = frozenset()
    structured: frozenset[int] = frozenset()


_USUAL = (Draw.HARD, Draw.BEYOND, Draw.HARD, Draw.DECLARED)
_USUAL_OF_CHOICES = (Draw.MIXED, Draw.DECLARED)  # of a task that may take any of equal values, or gives integers
_HUGE = (1e3, 1e4)  # that other tasks have in a draw
_SCALES = (1e5, 1e7, 1e9, 1e12, 1e18)


def find(
    source: str,
    run: Callable[[list[Any]], Any],
    call: Callable[[list[Any]], list[torch.Tensor]],
    draw: Callable[[int], list[Any]],
    seen: Sequence[Integers],
) -> Found:
    """What is known of a task. `run` calls its model with a copy, `call` with the inputs themselves.

    `draw` gives inputs of its own, `seen` their integers.
    """
    ties = not harder_than_mixed(source)
    own = draw(0)
    of_own = structured(own, draw)
    use, outputs = IntegerUse(own), []
    if seen:
        with contextlib.suppress(InvalidReference, UnsupportedReference), use:
            outputs = call(own)
        own = draw(0)  # the model may change what it is given
    watched = Decisions()
    answers: list[torch.Tensor] = []
    with contextlib.suppress(InvalidReference, UnsupportedReference), watched:
        answers = run(own).outputs
    answered = max(map(torch.Tensor.numel, answers), default=0)
    has_huge = not ties and not any(map(is_integer, answers))  # among its draws
    asks = decides(source) or watched.is_one_sided
    scales, values = _decisions(run, draw, has_huge=has_huge) if asks else ((), ())
    ignored = {label for label in watched.ignored if "ignore_index" in source or str(label) in source}
    asked = (watched.integers - watched.ignored) | ignored  # a loss of torch itself asks for its default
    return Found(
        scales,
        tuple(sorted({*values, *watched.values})),
        tuple(seen),
        use.only_computes,
        use.is_pointwise,
        ties,
        tuple(sorted(asked)),
        watched.adds and not watched.stores,
        decides(source),
        watched.chooses,
        matches=watched.matches or (ties and watched.compares_tensors),
        compared=use.compared(outputs),
        bounds={
            number: tuple(sorted({*use.bounds.get(number, ()), *use.limits.get(number, ())}))
            for number in use.bounds.keys() | use.limits.keys()
        },
        shifts=use.shifts,
        stable=sorts_stably(source),
        lone_nans=takes_the_other(source),
        specials=() if takes_the_other(source) else specials_of(source),
        hides_products=watched.product_size > answered,
        orders=watched.compares_tensors,
        ordered=tuple(sorted(use.ordered)),
        counted=frozenset(use.counted),
        equal=frozenset(use.asked),
        structured=of_own,
    )


def _decisions(
    run: Callable[[list[Any]], Any], draw: Callable[[int], list[Any]], *, has_huge: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    known: set[Outcome] = set()
    values: set[float] = set()

    def outcomes(inputs: list[Any]) -> set[Outcome]:
        decisions = Decisions()
        with contextlib.suppress(InvalidReference, UnsupportedReference), decisions:
            run(inputs)
        values.update(decisions.values)
        return decisions.outcomes

    for number, usual in enumerate(_USUAL if has_huge else _USUAL_OF_CHOICES):
        known |= outcomes(redrawn(draw(number), usual))
    scales = []
    for number, scale in enumerate((*(() if has_huge else _HUGE), *_SCALES)):
        if all((at, not way) in known for at, way in known):
            break
        inputs = draw(number)
        for at, tensor in enumerate(each_tensor(inputs)):
            if is_drawn(tensor):
                inputs = changing(at, of_scale(scale))(inputs)
        new = outcomes(inputs) - known
        if new:
            scales.append(scale)
        known |= new
    return tuple(scales), tuple(sorted(values))
