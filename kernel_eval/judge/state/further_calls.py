"""Calls beside the trials: the first call's record, with parameters or values far from those that trials have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from weir.kernel_eval.ipc.messages import Recorded
from weir.kernel_eval.ipc.tensor_arena import tensors_among
from weir.kernel_eval.ipc.trace import Launch, Trace
from weir.kernel_eval.judge.state.counterparts import counterparts, without_weights
from weir.kernel_eval.judge.state.questions import Question, Subject
from weir.kernel_eval.judge.state.small_parameters import small_subject, small_weights
from weir.kernel_eval.judge.state.wide_parameters import wide_calls, with_values
from weir.kernel_eval.tasks.answers import Expected, is_finite, is_integer
from weir.kernel_eval.tasks.changing import with_small_rows
from weir.kernel_eval.tasks.effects.side_effects import named_tensors
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed

_MOST_WAVERING = 0.01  # of the elements of answers


def further_calls(
    reference: Reference, own: Subject, trace: Trace, constant: Collection[str], secret: bytes, relaxed: Collection[str]
) -> Iterator[tuple[str, Subject, Question]]:
    """Each call with the name of its kind, as far as the task has a finite answer.

    `own`: the subject as it was constructed. `trace`: of the first call. `constant`: what starts the same for every
    seed.
    """
    if "varied_parameters" not in relaxed:
        for subject, question in wide_calls(reference, own, trace, constant, secret):
            yield "wide_parameters", subject, question
        yield from _counted_calls(reference, own, trace, secret)
    added = reference.added(own.model)
    if not added or "varied_inputs" in relaxed:
        return
    inputs = reference.inputs(derive_seed(secret, "inputs", "small"))
    subject = own
    if "varied_parameters" not in relaxed:
        has_floats = any(tensor.is_floating_point() for tensor in tensors_among(inputs))
        seed = derive_seed(secret, "small")
        subject = small_subject(own, trace, constant, seed, added, has_floats=has_floats)
    inputs = reference.branches.above_zero(own.model, with_small_rows(inputs, added))
    with contextlib.suppress(InvalidReference, UnsupportedReference):
        expected = reference.expected(subject.model, inputs)
        if is_finite(expected.outputs) and _is_determined(reference, subject, inputs, expected):
            yield "small_values", subject, Question(inputs, expected)
    if "varied_parameters" in relaxed or not reference.watched(own.model).adds_to_weights:
        return
    for subject in small_weights(own, trace, constant, derive_seed(secret, "small", "weights"), added):
        inputs = reference.inputs(derive_seed(secret, "inputs", "small weights"))
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            expected = reference.expected(subject.model, inputs)
            if is_finite(expected.outputs) and _is_determined(reference, subject, inputs, expected):
                yield "small_weights", subject, Question(inputs, expected)


def _counted_calls(
    reference: Reference, own: Subject, trace: Trace, secret: bytes
) -> Iterator[tuple[str, Subject, Question]]:
    """Calls late in a run, as far as counts say so that kernels read: what the host reads is part of a record."""
    read = {trace.storages[at] for step in trace.steps if isinstance(step, Launch) for at in step.storages}
    held = counterparts(own.model, {count.name for count in reference.branches.counts(own.model)}, own.state, own.named)
    for number, count in enumerate(reference.branches.counts(own.model)):
        found = held.get(count.name)
        if found is None or not found.is_named:
            continue
        if any(one.kind == "state" and one.index == found.place.storage for one in read):
            value = torch.tensor(count.value)
            subject = with_values(own, held, {count.name: value})
            inputs = reference.inputs(derive_seed(secret, "inputs", "counted", number))
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                expected = reference.expected(subject.model, inputs)
                if reference.is_comparable(subject.model, inputs, expected):
                    yield "other_counts", subject, Question(inputs, expected)


def told_apart(
    own: Subject, records: Sequence[Recorded], with_other_weights: Callable[[], Mapping[str, torch.Tensor]]
) -> Subject:
    """The subject with what is known of its state: which of it that has no counterpart is made of no random weight.

    `with_other_weights`: what a second construction has by name; called where such tensors are read.
    """
    held = counterparts(own.model, {name for name, _ in named_tensors(own.model)}, own.state, own.named)
    read = {storage.index for one in records for storage in one.trace.storages if storage.kind == "state"}
    if read <= {found.place.storage for found in held.values()}:
        return own
    return own._replace(apart=without_weights(own.state, own.named, with_other_weights()))


def _is_determined(reference: Reference, subject: Subject, inputs: list[Any], expected: Expected) -> bool:
    """Whether roundings seldom decide which of nearly equal values a task chooses, as those made of small ones are."""
    chooses = reference.watched(subject.model).makes_places or any(map(is_integer, expected.outputs))
    return not chooses or not reference.wavers(subject.model, inputs, expected, _MOST_WAVERING)
