"""Adds to the inputs of a task, step by step (`hardening.py`), what the task accepts, and learns what it refuses."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from weir.kernel_eval.tasks.answers import Expected, far_apart, is_integer, largest, num_floating
from weir.kernel_eval.tasks.changing import Step, each_tensor, integers_of
from weir.kernel_eval.tasks.draws.matches import may_match
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.found import Found, find
from weir.kernel_eval.tasks.hardening import steps, steps_across
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.watches.places import with_places

if TYPE_CHECKING:
    from weir.kernel_eval.tasks.reference import Reference

ROUNDINGS = 32.0  # halves; an answer that so few change is not one that kernels can be held to
_MOST_WEIGHTS = 4  # whose rows inputs get
_ATTEMPTS = 3  # at a step, before it counts as one that the task refuses


class Hardener:
    """What one task accepts besides its draws; found out with the first inputs that are hardened."""

    def __init__(self, reference: Reference, source: str) -> None:
        self._reference = reference
        self._source = source
        self._found: Found | None = None
        self._refused = Counter[tuple[Draw, bool, tuple[str, int]]]()  # how often, by draw, whether mixed, and step
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

    def harden(
        self, model: Any, inputs: list[Any], expected: Expected, draw: Draw, seed: int, *, mixed: bool = True
    ) -> tuple[list[Any], Expected]:
        """Inputs of a draw, which was to be a `mixed` one or not, with what else the task accepts, and the answer."""
        by_value = self._reference.works_by_value(model)
        if not mixed and by_value and draw is not Draw.FADED:
            return inputs, expected
        known = self._known(model)
        takes_any = any(is_integer(output) for output in expected.outputs) and num_floating(inputs) > 0
        found = known._replace(ties=known.ties or (takes_any and known.chooses), whole=takes_any)
        weights = _weights(model) if found.hides_products or draw is Draw.RELATED else ()
        found = found._replace(by_value=by_value, weights=weights, added=self._reference.added(model))
        chosen = steps(inputs, draw, found) if mixed else steps_across(inputs, draw, found)
        for number, choices in enumerate(itertools.chain(chosen, self._of_places(model, inputs, draw, found))):
            for step in choices:
                made = self._taken(model, inputs, expected, step, seed + number, beside=(draw, mixed))
                if made is not None:
                    inputs, expected = made
                    break
        return inputs, expected

    def _of_places(self, model: Any, inputs: list[Any], draw: Draw, found: Found) -> Iterator[list[Step]]:
        """Integers that are the places which the task computes."""
        if draw is not Draw.MATCHED or not self._reference.watched(model).makes_places:
            return
        tensors = list(each_tensor(inputs))
        own = [at for at, seen in integers_of(inputs, found.integers) if may_match(tensors[at], seen)]
        call = functools.partial(self._reference.outputs, model)
        yield [Step(("places", 0), functools.partial(with_places, call, own))]

    def _taken(
        self,
        model: Any,
        inputs: list[Any],
        expected: Expected,
        step: Step,
        seed: int,
        *,
        beside: tuple[Draw, bool],
    ) -> tuple[list[Any], Expected] | None:
        """Inputs that a step changed, and the answer; None if the task refuses some such changes one after the other.

        A step that it has accepted once is tried as often in each evaluation: one draw of it may be unlucky. What it
        refuses `beside` the values of one draw, mixed or not, it may accept beside those of another.
        """
        refused = *beside, step.name
        for attempt in range(_ATTEMPTS):
            if step.name not in self._accepted and self._refused[refused] >= _ATTEMPTS:
                return None
            torch.manual_seed((seed + (attempt << 32)) % (1 << 63))
            with contextlib.suppress(InvalidReference, UnsupportedReference):  # of a step that asks the task itself
                changed = step.apply(inputs)
                answer = self._answer_to(model, changed, inputs, expected, step)
                if answer is not None:
                    self._accepted.add(step.name)
                    return changed, answer
            self._refused[refused] += 1
        return None

    def wavers(self, model: Any, inputs: list[Any], answer: Expected, share: float = 0.0) -> bool:
        """Whether a rounding of the inputs changes more than a share of an answer's elements.

        It then tells less of it everywhere.
        """
        changed = self._wavering(model, inputs, answer)
        return sum(int(one.sum()) for one in changed) > share * sum(one.numel() for one in changed)

    def _answer_to(
        self, model: Any, inputs: list[Any], before: list[Any], expected: Expected, step: Step
    ) -> Expected | None:
        """The answer to changed inputs, in the form of the one before; None if it cannot be compared or wavers more."""
        try:
            answer = self._reference.expected(model, inputs)
            same_form = [(o.shape, o.dtype) for o in answer.outputs] == [(o.shape, o.dtype) for o in expected.outputs]
            if not same_form or not self._reference.is_comparable(model, inputs, answer):
                return None
            if largest(answer.outputs) > step.most * largest(expected.outputs):
                return None
            asked = ((inputs, answer), (before, expected)) if step.sensitive else ()
            wavering = [self._wavering(model, *question, alike=step.alike) for question in asked]
            return None if any(bool((now & ~then).any()) for now, then in zip(*wavering, strict=True)) else answer
        except (InvalidReference, UnsupportedReference):
            return None

    def _wavering(self, model: Any, inputs: list[Any], answer: Expected, *, alike: bool = False) -> list[torch.Tensor]:
        """Where a rounding of the inputs, or of what is computed from them, changes an answer by a hundredth.

        `alike`: by one that keeps equal inputs equal.
        """
        known = answer.outputs
        wavering = [torch.zeros_like(output, dtype=torch.bool) for output in known]
        for roundings in (0.0, ROUNDINGS):  # one after the other: answers in float64 are large
            precise = self._reference.expected_float64(model, inputs, known, roundings=roundings, alike=alike)
            for found, one, two in zip(wavering, known, precise or known, strict=True):
                found |= far_apart(one, two)
        return wavering


def _weights(model: Any) -> tuple[torch.Tensor, ...]:
    """The first matrices and filters of a model."""
    found = [value for value in model.parameters() if value.dim() > 1] if isinstance(model, torch.nn.Module) else []
    return tuple(found[:_MOST_WEIGHTS])
