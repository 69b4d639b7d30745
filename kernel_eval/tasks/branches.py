"""Which ways a task decides, and which of its inputs make it decide otherwise than usual ones do."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from weir.kernel_eval.tasks.answers import is_finite, num_floating
from weir.kernel_eval.tasks.changing import changing, each_tensor, is_drawn
from weir.kernel_eval.tasks.draws.lone_numbers import held_numbers, lone_numbers, others, with_number
from weir.kernel_eval.tasks.effects.side_effects import is_counter, named_tensors
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.input_draws import redrawn, sums_to_one
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.task_source import SET_BOUNDS, decides, names_in, numbers_in, specials_of
from weir.kernel_eval.tasks.watches.decisions import Branch, Decisions, Outcome

if TYPE_CHECKING:
    from weir.kernel_eval.tasks.reference import Reference

_LOOKED_AT = (Draw.DECLARED, Draw.HARD)
_NUM_LOOKED_AT = 3  # draws of a kind, whose decisions are looked at
_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "small": lambda value: value * 1e-3,
    "above zero": lambda value: value.abs() * 100,
    "below zero": lambda value: value.abs() * -100,
    "negated": torch.neg,
    "large": lambda value: value * 1e3,
    "zero": torch.zeros_like,  # last, since many answers to zeros are the same
}
_SPECIAL = {"one NaN": math.nan, "one infinite": math.inf, "one below all": -math.inf}
_MOST_INPUTS = 3  # that are changed alone
_MOST_TURNS = 4
_MOST_ELEMENTS = 1 << 22  # of inputs: some tens of calls look for the changes
_OF_SIGNS = (Draw.BOUNDED, Draw.NEGATIVE, Draw.NEGATED, Draw.BELOW)
_NUMBER = "number"  # a turn that gives a leaf of the inputs, by its position, another value
_MOST_NUMBERS = 8
_MOST_OF_NUMBERS, _MOST_OF_FLAGS = 1 << 22, 1 << 24  # elements of inputs: a hundred calls look for the numbers
_NUM_TURNED = 3  # draws, all of which a change leads the same way
_JOINED = 64  # times as many values as an answer has: beside those beyond one bound, those beyond another do not count
_LEAST_BOUND, _MOST_BOUND, _MOST_BOUNDS = 0.5, 100.0, 3  # that inputs are moved beyond
_FAR, _USUAL = 2.0, 2.0  # times as far as a bound; where there is none


class Turn(NamedTuple):
    """A change of whole inputs, by name; `at` are those that are changed, by their number among the tensors.

    Or another value, `by`, of a lone number, at its position among all leaves.
    """

    at: tuple[int, ...]
    change: str = "moved"
    by: float = 0.0  # how far


class Count(NamedTuple):
    """A value of a buffer of one whole number, which calls count up, by its name."""

    name: str
    value: int


class Branches:
    """What one task decides; found out when it is first asked for."""

    def __init__(self, reference: Reference, source: str) -> None:
        self._reference = reference
        self._source = source
        self._decides_beyond: bool | None = None
        self._turns: list[Turn] | None = None
        self._counts: list[Count] | None = None
        self._positive: frozenset[int] | None = None

    def needs_huge(self, model: Any, inputs: list[Any]) -> bool:
        """Whether huge values belong to what a task asks for.

        They do if it sets bounds for one input, or if it decides something otherwise than for other values. Products of
        several huge inputs are beyond what kernels are made for.
        """
        if names_in(self._source) & SET_BOUNDS and num_floating(inputs) == 1:
            return True
        if self._decides_beyond is None:
            usual, beyond = (self._outcomes(model, draw) for draw in (Draw.HARD, Draw.BEYOND))
            self._decides_beyond = not beyond <= usual
        return self._decides_beyond

    def decides_otherwise(self, model: Any, than: Any) -> bool:
        """Whether a task that compares values decides for one model what it does not for another."""
        if not decides(self._source):
            return False
        one, two = (set.union(*(self._outcomes(m, draw) for draw in _LOOKED_AT)) for m in (model, than))
        return not one <= two

    def turns(self, model: Any) -> list[Turn]:
        """Changes of whole inputs after which the task takes a way that it does not always take for usual draws.

        For tasks that ask something of a single number, as of the norm of an input, and for those that join many values
        in an answer after bounds, which are asked for one side at a time. Each change leads another way.
        """
        if self._turns is None:
            self._turns = [*self._all_turns(model), *self._other_numbers(model)]
        return self._turns

    def _all_turns(self, model: Any) -> list[Turn]:
        first = self._reference.inputs(0)
        asks_one, joins = self._reference.watched(model).asks_one, self._joins(model, first)
        size = sum(value.numel() for value in each_tensor(first))
        floating = [at for at, value in enumerate(each_tensor(first)) if is_drawn(value) and not sums_to_one(value)]
        if not (asks_one or joins) or not floating or size > _MOST_ELEMENTS:
            return []
        own = [first, *(self._reference.inputs(number) for number in range(1, _NUM_TURNED))]
        alone = [(at,) for at in floating[:_MOST_INPUTS]]
        found: list[Turn] = []
        if asks_one:
            groups = [*alone, *([tuple(floating)] if len(floating) > 1 else [])]
            found += self._find_turns(model, own, [Turn(at, name) for at in groups for name in _CHANGES])
            for name in _SPECIAL if specials_of(self._source) else ():  # each alone: a kernel may ask for one kind
                found += self._find_turns(model, own, [Turn(at, name) for at in alone])[:1]
        if joins and self._decides(model, first):
            shifts = [sign * by for by in self._bounds(model) for sign in (1, -1)]
            found += self._find_turns(model, own, [Turn(at, by=by) for at in alone for by in shifts], sides=True)
        return found

    def _other_numbers(self, model: Any) -> list[Turn]:
        """Other values of lone numbers with which the task takes ways that it does not take with its own.

        Of each such way the nearest and the farthest value, and beside the nearest the number that the task holds.
        """
        own = [self._reference.inputs(number) for number in range(_NUM_TURNED)]
        numbers = lone_numbers(own[0])
        size = sum(value.numel() for value in each_tensor(own[0]))
        numbers = [one for one in numbers if size <= (_MOST_OF_FLAGS if type(one[1]) is bool else _MOST_OF_NUMBERS)]
        if not numbers:
            return []
        known = frozenset[Any]().union(*(self._ways(model, inputs) or () for inputs in own))
        held, found = held_numbers(numbers_in(self._source), model), dict[Turn, None]()
        for at, number in numbers:
            by_ways: dict[frozenset[Any], list[list[Turn]]] = {}
            for near in others(number, held):
                turns = [Turn((at,), _NUMBER, float(one)) for one in near]
                for turn in turns:
                    ways = self._ways(model, _turned(own[0], turn)) or known
                    if not ways <= known:
                        by_ways.setdefault(ways - known, []).append([turn, turns[0]])
            for led in by_ways.values():
                led.sort(key=lambda turns: abs(turns[0].by - number))
                if self._leads(model, own, led[0][0], known) and self._leads(model, own, led[-1][0], known):
                    found |= dict.fromkeys((*led[0], led[-1][0]))
        return list(found)[:_MOST_NUMBERS]

    def above_zero(self, model: Any, inputs: list[Any]) -> list[Any]:
        """A draw without signs in the inputs that have none."""
        for at in self._without_signs(model):
            inputs = changing(at, torch.abs)(inputs)
        return inputs

    def has_signs(self, model: Any, inputs: list[Any]) -> bool:
        """Whether values are below zero in inputs that have no signs."""
        tensors = list(each_tensor(inputs))
        return any(bool((tensors[at] < 0).any()) for at in self._without_signs(model))

    def is_for_signs(self, model: Any, draw: Draw) -> bool:
        """Whether a draw differs from others by signs, and the task has inputs without."""
        return draw in _OF_SIGNS and bool(self._without_signs(model))

    def _without_signs(self, model: Any) -> frozenset[int]:
        """Inputs, by number, that the task draws above zero and does not take with mixed signs.

        As a whole, or several together, they may have an answer below zero (`log(x / x.sum())`, `log(a / b)`) that
        another formula of it has not.
        """
        if self._positive is None:
            own = self._reference.inputs(0)
            above = [at for at, value in enumerate(each_tensor(own)) if is_drawn(value) and bool((value >= 0).all())]
            self._positive = frozenset(at for at in above if not self._takes_signs(model, own, at))
        return self._positive

    def _takes_signs(self, model: Any, own: list[Any], at: int) -> bool:
        if sums_to_one(list(each_tensor(own))[at]):
            return False
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            inputs = changing(at, _with_signs)(own)
            return self._reference.is_comparable(model, inputs, self._reference.expected(model, inputs))
        return False

    def counts(self, model: Any) -> list[Count]:
        """Values of the model's counters with which the task takes ways that it does not take in its first calls."""
        if self._counts is None:
            self._counts = self._far_counts(model)
        return self._counts

    def _far_counts(self, model: Any) -> list[Count]:
        changed = set(self._reference.effects(model).state)
        counters = {name: tensor for name, tensor in named_tensors(model) if name in changed and _counts(tensor)}
        inputs = self._reference.inputs(0)
        if not counters or sum(value.numel() for value in each_tensor(inputs)) > _MOST_OF_NUMBERS:
            return []
        known, called = frozenset[Any](), model
        for _ in range(_NUM_TURNED):
            known |= self._ways(called, inputs) or frozenset()
            called = self._reference.after(called, inputs)
        found: list[Count] = []
        for name, tensor in counters.items():
            for near in others(int(tensor), held_numbers(numbers_in(self._source), model)):
                for count in sorted(Count(name, int(one)) for one in near if _holds(tensor, int(one))):
                    ways = self._ways(with_count(model, count), inputs) or known
                    if not ways <= known:
                        known |= ways
                        found.append(count)
        return found[:_MOST_NUMBERS]

    def _leads(self, model: Any, own: list[list[Any]], turn: Turn, known: frozenset[Any]) -> bool:
        """Whether a turn leads all draws of a task to ways that are not known, and to answers that can be compared."""
        turned = [_turned(inputs, turn) for inputs in own]
        if any((self._ways(model, inputs) or known) <= known for inputs in turned):
            return False
        return all(self._branch(model, inputs, sides=False) is not None for inputs in turned)

    def _ways(self, model: Any, inputs: list[Any]) -> frozenset[Any] | None:
        """The ways of the task's Python and of what it asks lone numbers; None if it has no answer."""
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            self._reference.effects(model)
            with self._reference.code_ways() as taken, Decisions() as decisions:
                self._reference.expected(model, inputs)
            return frozenset(taken.ways | set(enumerate(decisions.of_one)))
        return None

    def _decides(self, model: Any, inputs: list[Any]) -> bool:
        branch = self._branch(model, inputs, sides=True)
        return branch is not None and bool(branch[1])

    def turned(self, inputs: list[Any], number: int) -> list[Any]:
        """Inputs that one of the changes found was made to, or the same where there is none of this number."""
        turns = self._turns or []
        return _turned(inputs, turns[number]) if number < len(turns) else inputs

    def _joins(self, model: Any, inputs: list[Any]) -> bool:
        """Whether an answer has few numbers, of many values."""
        most = max(value.numel() for value in each_tensor(inputs))
        return 0 < _JOINED * self._reference.effects(model).fewest <= most

    def _bounds(self, model: Any) -> list[float]:
        """How far inputs are moved: beyond the largest numbers that the task gives to operators."""
        numbers = {abs(number) for number in self._reference.watched(model).numbers}
        bounds = sorted((number for number in numbers if _LEAST_BOUND <= number <= _MOST_BOUND), reverse=True)
        return [_FAR * bound for bound in bounds[:_MOST_BOUNDS]] or [_USUAL]

    def _find_turns(self, model: Any, own: list[list[Any]], turns: list[Turn], *, sides: bool = False) -> list[Turn]:
        """Those of some changes that lead another way; `sides`: each side of a bound is a way of its own."""
        known = set[Any]()
        for draw in _LOOKED_AT:
            draws = [redrawn(self._reference.inputs(number), draw) for number in range(_NUM_LOOKED_AT)]
            known |= set.intersection(*({self._branch(model, inputs, sides)} for inputs in draws))
        found: list[Turn] = []
        for turn in turns:
            branch = self._branch(model, _turned(own[0], turn), sides)
            if branch is None or branch in known or len(found) == _MOST_TURNS:
                continue
            if all(self._branch(model, _turned(other, turn), sides) == branch for other in own[1:]):
                known.add(branch)
                found.append(turn)
        return found

    def _branch(self, model: Any, inputs: list[Any], sides: bool) -> tuple[Branch, tuple[bool, ...]] | None:
        """The way that the task takes for some inputs; None if it has no answer to compare, or a rounding moves it."""
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            self._reference.effects(model)  # found out once, by a call that decides, too
            with Decisions() as decisions:
                expected = self._reference.expected(model, inputs)
            if is_finite(expected.outputs) and not self._reference.wavers(model, inputs, expected):
                return decisions.branch, tuple(decisions.ways) if sides else ()
        return None

    def _outcomes(self, model: Any, draw: Draw) -> set[Outcome]:
        """How the task decides for some draws of a kind; empty if they are not accepted."""
        outcomes: set[Outcome] = set()
        for number in range(_NUM_LOOKED_AT):
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                self._reference.effects(model)  # found out once, by a call that decides for another draw
                with Decisions() as decisions:
                    self._reference.expected(model, redrawn(self._reference.inputs(number), draw))
                outcomes |= decisions.outcomes
        return outcomes


def _with_signs(value: torch.Tensor) -> torch.Tensor:
    """Every other value is below zero."""
    signs = 1 - 2 * (torch.arange(value.numel(), device=value.device) % 2)
    return value * signs.view(value.shape).to(value.dtype)


def _counts(tensor: torch.Tensor) -> bool:
    """Whether a tensor may count calls: one whole number."""
    return is_counter(tensor) or (tensor.is_floating_point() and tensor.numel() == 1 and float(tensor) % 1 == 0)


def _holds(tensor: torch.Tensor, value: int) -> bool:
    if tensor.is_floating_point() or tensor.dtype is torch.bool:
        return True
    info = torch.iinfo(tensor.dtype)
    return bool(info.min <= value <= info.max)


def with_count(model: Any, count: Count) -> Any:
    """A copy of a model whose counter has another value."""
    changed = copy.deepcopy(model)
    dict(named_tensors(changed))[count.name].detach().fill_(count.value)  # it may be a parameter
    return changed


def _turned(inputs: list[Any], turn: Turn) -> list[Any]:
    if turn.change == _NUMBER:
        return with_number(inputs, turn.at[0], turn.by)

    def change(value: torch.Tensor) -> torch.Tensor:
        if turn.change in _SPECIAL:
            made = value.clone(memory_format=torch.contiguous_format)
            made.view(-1)[int(torch.randint(value.numel(), ()))] = _SPECIAL[turn.change]
            return made
        most = torch.finfo(value.dtype).max
        wide = value.double()
        changed = _CHANGES[turn.change](wide) if turn.change in _CHANGES else wide + turn.by
        return changed.clamp(-most, most).to(value.dtype)

    for at in turn.at:
        inputs = changing(at, change)(inputs)
    return inputs
