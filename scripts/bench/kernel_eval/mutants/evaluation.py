"""The questions of one evaluation, and whether they tell a mutant of a task from the task."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from weir.kernel_eval.ipc.messages import NamedPlace
from weir.kernel_eval.ipc.trace import Place, Storage, Trace
from weir.kernel_eval.judge.checks.expected_answers import difference, left_out
from weir.kernel_eval.judge.checks.varied_parameters import VariedParameters
from weir.kernel_eval.judge.state.counterparts import loadable
from weir.kernel_eval.judge.state.further_calls import further_calls
from weir.kernel_eval.judge.state.questions import Question, Questions, Subject, variants_of
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed
from weir.scripts.bench.kernel_eval.mutants.mode import Changed, Mutant

_TRIALS = 3
_SECRET_BYTES = 16
_STEP_S = 30.0


class Told(StrEnum):
    """What the questions of an evaluation show of a mutant."""

    WRONG = "wrong"  # it would be refused
    NEAR = "near"  # it answers otherwise, within the tolerances
    EQUAL = "equal"  # it answers the same
    NOT_THERE = "not there"  # what it changes does not run, or does not apply


class _Asked(NamedTuple):
    model: Any
    question: Question
    is_own: bool  # the first of the trials, whose inputs are as the task draws them


class Evaluation:
    """One evaluation of a task, from a secret of its own. Raises as `Reference` does."""

    def __init__(self, source: str) -> None:
        self._reference = Reference(source, _STEP_S)
        secret = os.urandom(_SECRET_BYTES)
        arguments = self._reference.init_arguments(derive_seed(secret, "init"))
        model = self._reference.build(arguments, derive_seed(secret, "weights"))
        fixed = self._reference.fixed_parameters(model, arguments)
        varied = VariedParameters(model, derive_seed(secret, "parameters"), fixed)
        far = VariedParameters(model, derive_seed(secret, "far"), fixed, far=True)
        self._reference.learn(model)
        self._asked = list(self._questions(secret, model, varied, far))

    def _questions(
        self, secret: bytes, model: Any, varied: VariedParameters, far: VariedParameters
    ) -> Iterator[_Asked]:
        """Those that `judge/checks/triton.py` asks of a candidate which holds what the task's model holds."""
        reference = self._reference
        own = _as_its_own_candidate(model)
        subjects = [Subject(varied.model, []), own] if varied.names else [own]
        is_far = bool(varied.names) and reference.branches.decides_otherwise(far.model, varied.model)
        variants = variants_of(reference, model, secret, _TRIALS, frozenset())
        questions = Questions(reference, secret, variants, subjects, Subject(far.model, []) if is_far else None)
        for trial in range(len(variants)):
            subject, question, _ = questions.take(trial)
            yield _Asked(subject.model, question, trial == 0)
        for _, subject, question in further_calls(reference, own, _reading_floats(own), varied.names, secret, ()):
            yield _Asked(subject.model, question, is_own=False)

    def mutants(self) -> list[Mutant]:
        """All mutants of what runs for the task's own inputs."""
        model, question, _ = self._asked[0]
        mode = Changed()
        self._run(model, question.inputs, mode)
        return mode.mutants()

    def told(self, mutant: Mutant) -> Told:
        """What the questions show of a mutant; the first that shows it wrong is enough."""
        found = [Told.NOT_THERE]
        for asked in self._asked:
            found.append(self._shown(asked, mutant))
            if found[-1] is Told.WRONG:
                break
        return min(found, key=list(Told).index)

    def _shown(self, asked: _Asked, mutant: Mutant) -> Told:
        reference, (model, (inputs, expected), is_own) = self._reference, asked
        mode = Changed(mutant)
        try:
            outputs = self._run(model, inputs, mode)
        except (InvalidReference, UnsupportedReference):
            return Told.WRONG
        forms = [[(one.shape, one.dtype) for one in answer] for answer in (outputs, expected.outputs)]
        if not mode.num_changed:
            return Told.NOT_THERE
        if forms[0] != forms[1] or difference(reference, model, inputs, expected, outputs) is not None:
            return Told.WRONG
        if all(map(_are_equal, outputs, expected.outputs)):
            return Told.EQUAL
        lacks = is_own and left_out(reference, model, inputs, expected, outputs) is not None
        return Told.WRONG if lacks else Told.NEAR

    def _run(self, model: Any, inputs: list[Any], mode: Changed) -> list[torch.Tensor]:
        given = copy.deepcopy(inputs)
        with mode:
            return self._reference.outputs(model, given)


def _are_equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether all values are equal, or NaN in both."""
    return bool(((one == two) | ((one != one) & (two != two))).all())


def _as_its_own_candidate(model: Any) -> Subject:
    """The task's model, and a candidate's state that holds the same tensors by the same names."""
    if not isinstance(model, torch.nn.Module):
        return Subject(model, [])
    named = dict(loadable(model))
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in named.items()}
    state = [tensor.detach().contiguous().flatten().clone().view(torch.uint8) for tensor in named.values()]
    places = tuple(
        NamedPlace(name, Place(number, dtypes[name], tuple(tensor.shape), _strides(tensor), 0))
        for number, (name, tensor) in enumerate(named.items())
    )
    return Subject(model, state, named=places)


def _reading_floats(subject: Subject) -> Trace:
    """The record of a call that reads all tensors of floats of a state."""
    floating = [named.place.storage for named in subject.named if "float" in named.place.dtype]
    storages = (Storage("state", number, subject.state[number].numel()) for number in floating)
    return Trace(tuple(storages), (), ())


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return torch.empty(tensor.shape, device="meta").stride()
