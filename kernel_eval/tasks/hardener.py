"""Adds to the inputs of a task, step by step (`hardening.py`), what the task accepts, and learns what it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch

from weir.kernel_eval.tasks.answers import Expected, far_apart, is_integer, largest, num_floating
from weir.kernel_eval.tasks.changing import Change, Step, each_tensor, integers_of, keeping, structures
from weir.kernel_eval.tasks.draws.matches import may_match
from weir.kernel_eval.tasks.effects.side_effects import named_tensors
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.found import Found, find
from weir.kernel_eval.tasks.hardening import steps, steps_across
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.watches.places import with_places

if TYPE_CHECKING:
    from weir.kernel_eval.tasks.reference import Reference

ROUNDINGS = 32.0  # halves; an answer that so few change is not one that kernels can be held to
_MOST_LEVELS = 4
_PHASES = (1, 7, 31, 127)  # of roundings, of which any may happen to change nothing
_USUAL, _STEADY = 100.0, 10_000.0  # one of so many parts of an answer, by which a rounding changes it
_MOST_WEIGHTS = 4  # whose rows inputs get
_ATTEMPTS = 3  # at a step, before it counts as one that the task refuses


@dataclasses.dataclass(slots=True)
class Posed:
    """Inputs of one call and the answer to them. Hardening replaces both here, so that it keeps none from before."""

    inputs: list[Any]
    expected: Expected


class Hardener:
    """What one task accepts besides its draws; found out with the first inputs that are hardened."""

    def __init__(self, reference: Reference, source: str) -> None:
        self._reference = reference
        self._source = source
        self._found: Found | None = None
        self._refused = Counter[tuple[Draw, bool, tuple[str, int]]]()  # how often, by draw, whether mixed, and step
        self._structure: dict[int, Change] = {}  # of the draw that is hardened
        self._accepted: set[tuple[str, int]] = set()  # steps, beside whatever draw

    def exact(self, model: Any) -> tuple[float, ...]:
        """The values that the task asks its inputs for: no rounding moves an input away from them."""
        return self._known(model).values

    def matches(self, model: Any) -> bool:
        """Whether the task asks which values are equal to others, or larger: roundings keep equal ones equal."""
        return self._known(model).matches or self._known(model).orders

    def _known(self, model: Any) -> Found:
        """What is known of the task, found out once."""
        if self._found is None:
            reference = self._reference
            own = reference.integers(None)
            self._found = find(
                self._source,
                lambda given: reference.expected(model, given),
                lambda given: reference.outputs(model, given),
                reference.inputs,
                own,
            )
        return self._found

    def harden(self, model: Any, question: Posed, draw: Draw, seed: int, *, mixed: bool = True) -> None:
        """Change a question of a draw, which was to be a `mixed` one or not, to one with what else the task accepts."""
        by_value = self._reference.works_by_value(model)
        if not mixed and by_value and draw is not Draw.FADED:
            return
        known = self._known(model)
        takes_any = any(map(is_integer, question.expected.outputs)) and num_floating(question.inputs) > 0
        found = known._replace(ties=known.ties or (takes_any and known.chooses), whole=takes_any)
        weights = _weights(model) if found.hides_products or draw is Draw.RELATED else ()
        levels = _levels(model) if known.orders or known.matches else ()
        found = found._replace(levels=levels, by_value=by_value, weights=weights, added=self._reference.added(model))
        drawn = question.inputs
        self._structure = structures(drawn, found.integers, found.structured)
        chosen = [*(steps if mixed else steps_across)(drawn, draw, found), *self._of_places(model, drawn, draw, found)]
        del drawn
        for number, choices in enumerate(chosen):
            for step in choices:
                if self._takes(model, question, step, seed + number, beside=(draw, mixed)):
                    break

    def _of_places(self, model: Any, inputs: list[Any], draw: Draw, found: Found) -> Iterator[list[Step]]:
        """Integers that are the places which the task computes, or of the largest values where it takes one of a row.

        With any labels, what a loss adds for others than the label is hidden in its mean.
        """
        watch = self._reference.watched(model)
        labels = draw is Draw.STRUCTURED and watch.takes_labels
        if not labels and not (draw is Draw.MATCHED and watch.makes_places):
            return
        tensors = list(each_tensor(inputs))
        own = [at for at, seen in integers_of(inputs, found.integers) if may_match(tensors[at], seen)]
        call = functools.partial(self._reference.outputs, model)
        yield [Step(("places", 0), functools.partial(with_places, call, own, labels=labels))]

    def _takes(self, model: Any, question: Posed, step: Step, seed: int, *, beside: tuple[Draw, bool]) -> bool:
        """Whether a step could change a question; not if the task refuses some such changes one after the other.

        A step that it has accepted once is tried as often in each evaluation: one draw of it may be unlucky. What it
        refuses `beside` the values of one draw, mixed or not, it may accept beside those of another.
        """
        refused = *beside, step.name
        for attempt in range(_ATTEMPTS):
            if step.name not in self._accepted and self._refused[refused] >= _ATTEMPTS:
                return False
            torch.manual_seed((seed + (attempt << 32)) % (1 << 63))
            with contextlib.suppress(InvalidReference, UnsupportedReference):  # of a step that asks the task itself
                changed = keeping(step.apply(question.inputs), self._structure)
                has_signs = self._reference.branches.has_signs(model, changed)
                answer = None if has_signs else self._answer_to(model, changed, question, step)
                if answer is not None:
                    self._accepted.add(step.name)
                    question.inputs, question.expected = changed, answer
                    return True
            self._refused[refused] += 1
        return False

    def wavers(self, model: Any, inputs: list[Any], answer: Expected, share: float = 0.0) -> bool:
        """Whether a rounding of the inputs changes more than a share of an answer's elements.

        It then tells less of it everywhere.
        """
        changed = self._wavering(model, inputs, answer)
        return sum(int(one.sum()) for one in changed) > share * sum(one.numel() for one in changed)

    def _answer_to(self, model: Any, inputs: list[Any], before: Posed, step: Step) -> Expected | None:
        """The answer to changed inputs, in the form of the one before; None if it cannot be compared or wavers more."""
        try:
            answer, expected = self._reference.expected(model, inputs), before.expected
            same_form = [(o.shape, o.dtype) for o in answer.outputs] == [(o.shape, o.dtype) for o in expected.outputs]
            if not same_form or not self._reference.is_comparable(model, inputs, answer):
                return None
            if largest(answer.outputs) > step.most * largest(expected.outputs):
                return None
            if step.settled and any(
                map(_differ, self._reference.with_other_ties(model, inputs), repeat(answer.outputs))
            ):
                return None
            asked = ((inputs, answer), (before.inputs, expected)) if step.sensitive or step.steady else ()
            wavering = [self._wavering(model, *each, alike=step.alike, steady=step.steady) for each in asked]
            return None if any(bool((now & ~then).any()) for now, then in zip(*wavering, strict=True)) else answer
        except (InvalidReference, UnsupportedReference):
            return None

    def _wavering(
        self, model: Any, inputs: list[Any], answer: Expected, *, alike: bool = False, steady: bool = False
    ) -> list[torch.Tensor]:
        """Where a rounding of the inputs, or of what is computed from them, changes an answer by a hundredth.

        `alike`: by one that keeps equal inputs equal. `steady`: by far less, or another one does.
        """
        share = _STEADY if steady else _USUAL

        def apart(roundings: float, phase: int = 1) -> list[torch.Tensor]:  # in turn: answers in float64 are large
            precise = self._reference.expected_float64(
                model, inputs, known, roundings=roundings, alike=alike, phase=phase
            )
            return [far_apart(one, two, share) for one, two in zip(known, precise or known, strict=True)]

        known = answer.outputs
        found = apart(0.0)
        for phase in _PHASES if steady else _PHASES[:1]:
            found = [one | other for one, other in zip(found, apart(ROUNDINGS, phase), strict=True)]
        return found


def _differ(other: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    return any(bool(far_apart(one, two).any()) for one, two in zip(outputs, other, strict=True))


def _levels(model: Any) -> tuple[torch.Tensor, ...]:
    """The first vectors of floats of a model, and lone numbers."""
    named = [value for _, value in named_tensors(model) if value.is_floating_point() and value.numel() > 0]
    return tuple(value for value in named if value.numel() == max(value.shape, default=1))[:_MOST_LEVELS]


def _weights(model: Any) -> tuple[torch.Tensor, ...]:
    """The first matrices and filters of a model."""
    found = [value for value in model.parameters() if value.dim() > 1] if isinstance(model, torch.nn.Module) else []
    return tuple(found[:_MOST_WEIGHTS])
