"""The questions of an evaluation: whom each trial is about, its inputs, and the reference's answer.

A question follows from the evaluation's secret and its number, not from when it is drawn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.tensor_arena import tensors_among
from weir.kernel_eval.tasks.answers import Expected
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.input_variants import Draw, Variant, plan
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed

_SMALL = 1 << 20  # bytes of a question beside which another one may lie


class Question(NamedTuple):
    """One trial: inputs of the reference, and its answer."""

    inputs: list[Any]
    expected: Expected


class Subject(NamedTuple):
    """The reference's model and the candidate's state, with the same parameters.

    `lacking`: parameters and buffers of the reference that start as one constant, have other values here, and were not
    found in the state. `apart`: the pieces of the state, by number, that are known to be made of no random weight.
    """

    model: Any
    state: list[torch.Tensor]
    lacking: tuple[str, ...] = ()
    named: tuple[NamedPlace, ...] = ()  # what the candidate's state holds by name
    apart: frozenset[int] = frozenset()

    @property
    def advice(self) -> str:
        """The end of a message about wrong values, if tensors that start as one constant were not found."""
        if not self.lacking:
            return ""
        names = ", ".join(self.lacking[:4]) + (", …" if len(self.lacking) > 4 else "")
        return (
            "; parameters and buffers that start as one constant get other values in trials, and ModelNew has none of "
            f"the name or the size of {names}"
        )


class Drawn(NamedTuple):
    """A question, whom it is about, and the variant that it is of."""

    subject: Subject
    question: Question
    variant: Variant


class Questions:
    """The questions of one evaluation, by trial."""

    def __init__(
        self,
        reference: Reference,
        secret: bytes,
        variants: Sequence[Variant],
        subjects: list[Subject],
        far: Subject | None,
    ) -> None:
        """`subjects`: as in `draw`. `far`: tried first in every other trial, if there is one."""
        self._reference = reference
        self._secret = secret
        self._variants = variants
        self._subjects = subjects
        self._far = far
        self._ahead: tuple[int, Drawn] | None = None
        self._is_small = False
        as_they_are = (Draw.DECLARED, Draw.TURNED)  # of the last, some have a flag that is turned over
        drawn = (trial for trial, variant in enumerate(variants) if variant.draw not in as_they_are)
        self._turned_over = next(drawn, None)  # the trial in which flags are

    def is_last(self, trial: int) -> bool:
        """Whether no trial follows."""
        return trial + 1 == len(self._variants)

    def take(self, trial: int) -> Drawn:
        """The question of a trial, which is not kept. Raises as `Reference.question` does."""
        ahead, self._ahead = self._ahead, None
        drawn = ahead[1] if ahead is not None and ahead[0] == trial else self._draw(trial)
        tensors = [*tensors_among(drawn.question.inputs), *drawn.question.expected.outputs]
        self._is_small = sum(tensor.nbytes for tensor in tensors) <= _SMALL
        return drawn

    def draw_ahead(self, trial: int) -> None:
        """Draw a question before it is asked for, if the last one was small. What fails is raised by `take`."""
        if self._is_small:
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                self._ahead = trial, self._draw(trial)

    def _draw(self, trial: int) -> Drawn:
        first = [self._far] if self._far is not None and trial % 2 else []
        seed = derive_seed(self._secret, "inputs", trial)
        drawn = draw(self._reference, [*first, *self._subjects], seed, self._variants[trial])
        return _with_other_flags(self._reference, drawn) if trial == self._turned_over else drawn


def _with_other_flags(reference: Reference, drawn: Drawn) -> Drawn:
    """The question with booleans of Python turned over, if it has any and its answer stays of one form."""
    subject, (inputs, expected), _ = drawn
    turned = [not value if type(value) is bool else value for value in inputs]
    if not any(type(value) is bool for value in inputs):
        return drawn
    try:
        other = reference.expected(subject.model, turned)
    except (InvalidReference, UnsupportedReference):
        return drawn
    forms = [[(output.shape, output.dtype) for output in one.outputs] for one in (expected, other)]
    if forms[0] != forms[1] or not reference.is_comparable(subject.model, turned, other):
        return drawn
    return drawn._replace(question=Question(turned, other))


def variants_of(
    reference: Reference, model: Any, secret: bytes, num_trials: int, relaxed: frozenset[str]
) -> list[Variant]:
    """The variants of the inputs of an evaluation: those of its trials, and what the task is asked besides."""
    return plan(
        num_trials,
        relaxed,
        derive_seed(secret, "variants"),
        few_rows=reference.needs_tiny(model),
        more=reference.more_draws(model),
        any_size=reference.takes_any_size(model),
    )


def draw(reference: Reference, subjects: Sequence[Subject], seed: int, variant: Variant) -> Drawn:
    """A question about the first subject whose answer can be compared, or else about the last."""
    for subject in subjects[:-1]:
        try:
            inputs, expected, drawn = reference.question(subject.model, seed, variant)
        except InvalidReference:  # the task's own code refuses the parameters
            continue
        if reference.is_comparable(subject.model, inputs, expected):
            return Drawn(subject, Question(inputs, expected), drawn)
    inputs, expected, drawn = reference.question(subjects[-1].model, seed, variant)
    return Drawn(subjects[-1], Question(inputs, expected), drawn)
