"""Parameters and buffers with values that a checkpoint may hold, far from those that a constructor draws.

A weight that is drawn from 0 to 0.1 says nothing of what a kernel does with negative or large ones, a variance of one
nothing of what is added to it. Some values get another sign, some are a hundred times as large or a millionth, the same
in the reference and in the candidate. Only those that the candidate's call reads where they lie: what its constructor
made of weights keeps its values.

What is added to products, one number for each result, has other values besides: all far below zero, or above it, so
that an extreme of products is, or what is chosen among them, whatever the inputs (`relu(max(x @ w + b))`); or some far
from zero, so that gates of a recurrence stay open and its first steps count until the end, as where a state's matrix
holds it. Pure.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import torch

from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.state.counterparts import Counterpart, counterparts, loadable, view_of
from weir.kernel_eval.judge.state.questions import Question, Subject
from weir.kernel_eval.tasks.answers import is_finite
from weir.kernel_eval.tasks.changing import with_others_for_constants
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.seeds import derive_seed

_MOST_BYTES = 32 << 20  # of a model
_KINDS = 8  # of values, of which three are as they were
_LEAST, _MOST = 8.0, 128.0  # times as large
_TINY = 1e-6
_FAR = 16.0, 48.0  # from zero, beyond what usual products are, and as much more at most
_OPEN = 0.5, 1.0  # digits before the point of what opens or closes a gate: for some 30 steps at least
_OF_A_GATE = 8  # neighbours, of which two are opened and two closed: a gate has no fewer
_LITTLE, _HOLDS = 0.1, 3.0  # times as large as others are; what a state is multiplied with to keep its sign
_FEW = 2  # values that are in order by chance
_STEPS = 8  # gates; of fewer, the first steps count anyhow


class Kind(StrEnum):
    """Which parameters have other values, and which."""

    WIDE = "wide"  # all of them, any
    BELOW = "below"  # what is added to products, far below zero
    ABOVE = "above"  # far above zero
    OPEN = "open"  # some of it far from zero, either way
    HELD = "held"  # the last square matrix nearly a multiple of the identity, so that a state keeps its sign


def wide_calls(
    reference: Reference, own: Subject, trace: Trace, constant: Collection[str], secret: bytes
) -> Iterator[tuple[Subject, Question]]:
    """Calls on the task's own draw with such parameters, as far as the task has a finite answer; as `wide_subjects`.

    What inputs hold everywhere (a state of zeros) they hold no more, if the task takes that.
    """
    for kind in _kinds(reference, own.model):
        for subject in wide_subjects(own, trace, constant, derive_seed(secret, kind), kind):
            question = _question(reference, subject, derive_seed(secret, "inputs", kind))
            if question is not None:
                yield subject, question
                break


def _kinds(reference: Reference, model: Any) -> list[Kind]:
    watch, kinds = reference.watched(model), [Kind.WIDE]
    if watch.num_joined > 1 or watch.makes_places:
        kinds += [Kind.BELOW, Kind.ABOVE]
    return [*kinds, Kind.OPEN, Kind.HELD] if watch.num_gates >= _STEPS else kinds


def _question(reference: Reference, subject: Subject, seed: int) -> Question | None:
    inputs = reference.inputs(seed)
    for given in (with_others_for_constants(inputs), inputs):
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            expected = reference.expected(subject.model, given)
            if is_finite(expected.outputs) and reference.is_comparable(subject.model, given, expected):
                return Question(given, expected)
    return None


def wide_subjects(
    subject: Subject, trace: Trace, constant: Collection[str], seed: int, kind: Kind = Kind.WIDE
) -> Iterator[Subject]:
    """The model and the candidate's state with wide values, then with milder ones; nothing if none may be changed.

    `subject`: as it was constructed. `trace`: of a call. `constant`: what starts the same for every seed.
    """
    own, held = changeable(subject, trace, constant)
    names = list(own)
    square = [name for name in names if own[name].dim() == 2 and own[name].shape[0] == own[name].shape[1]][-1:]
    if kind is Kind.HELD:
        names = names if square else []
    elif kind is not Kind.WIDE:
        names = [name for name in names if _is_added(own[name])]
    buffers = {name for name, _ in subject.model.named_buffers()} if own else set()
    for positive in ((), buffers, set(names))[: 3 if kind is Kind.WIDE else 1] if names else ():
        generator = torch.Generator().manual_seed(seed)
        values: dict[str, torch.Tensor] = {}
        for name in names:
            if kind is Kind.WIDE:
                values[name] = _drawn(own[name], generator, positive=name in positive)
            elif kind is Kind.HELD:
                values[name] = _holding(own[name], is_state=name in square)
            else:
                values[name] = _far(own[name], generator, kind)
        yield with_values(subject, held, values)


def changeable(
    subject: Subject, trace: Trace, constant: Collection[str]
) -> tuple[dict[str, torch.Tensor], dict[str, Counterpart]]:
    """What may get other values, by name: the model's tensors, and where the candidate's state holds the same.

    Arguments as in `wide_subjects`.
    """
    model, state = subject.model, subject.state
    if not isinstance(model, torch.nn.Module) or sum(tensor.nbytes for _, tensor in loadable(model)) > _MOST_BYTES:
        return {}, {}
    own = {name: tensor for name, tensor in loadable(model) if tensor.is_floating_point()}
    held = counterparts(model, own.keys(), state, subject.named)
    read = {storage.index for storage in trace.storages if storage.kind == "state"}
    known = subject.apart | {found.place.storage for found in held.values()}
    alone = read <= known  # else it may read what was made of weights
    names = [
        name
        for name, found in held.items()
        if found.place.storage in read and (found.is_named if name in constant else alone)
    ]
    return {name: own[name] for name in names}, held


def with_values(subject: Subject, held: Mapping[str, Counterpart], values: Mapping[str, torch.Tensor]) -> Subject:
    """A copy of the model and of the candidate's state in which tensors, by name, have other values."""
    changed = copy.deepcopy(subject.model)
    pieces = _copies(subject.state, [held[name].place.storage for name in values])
    for name, tensor in loadable(changed):
        if name in values:
            tensor.data.copy_(values[name].view(tensor.shape))
            view = view_of(pieces, held[name].place)
            assert view is not None
            view.copy_(tensor.data.view(view.shape))
    return subject._replace(model=changed, state=pieces, lacking=())


def _drawn(own: torch.Tensor, generator: torch.Generator, *, positive: bool) -> torch.Tensor:
    """Values of a tensor's shape: some negated, some large with either sign, some tiny, and some as they are."""
    values = own.detach().cpu().float().flatten()
    first = values[0] if values.numel() else None
    if first is not None and bool((values == first).all()):  # a constant says as much of any value as of its own
        values = torch.rand(values.shape, generator=generator) + 0.5
    kinds = torch.randperm(values.numel(), generator=generator) % _KINDS
    large = torch.rand(values.shape, generator=generator) * (_MOST - _LEAST) + _LEAST
    ones = torch.ones_like(values)
    sign = ones if positive else -ones
    factors = ones
    for kind, factor in enumerate((sign, large, sign * large, ones * _TINY, large)):
        factors = torch.where(kinds == kind, factor, factors)
    return in_order_of(own, (values * factors).view(own.shape))


def in_order_of(own: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """The drawn values, in order along the last dimension if a tensor's own are: the bounds of buckets, say."""
    is_ordered = (
        own.dim() > 0 and own.shape[-1] > _FEW and bool((own.diff() >= 0).all()) and bool((own != own[..., :1]).any())
    )
    return drawn.sort(-1).values if is_ordered else drawn


def _is_added(own: torch.Tensor) -> bool:
    """Whether a tensor has one number for each result of a product, and is no scale of them."""
    return 1 < own.numel() == max(own.shape) and not bool((own == 1).all())


def _far(own: torch.Tensor, generator: torch.Generator, kind: Kind) -> torch.Tensor:
    """Values of a tensor's shape: all beyond usual products, or half of them far from zero, either way."""
    values = own.detach().cpu().float().flatten()
    if kind is not Kind.OPEN:
        far = _FAR[0] + (_FAR[1] - _FAR[0]) * torch.rand(values.shape, generator=generator)
        return in_order_of(own, (far if kind is Kind.ABOVE else -far).view(own.shape))
    digits = _OPEN[0] + (_OPEN[1] - _OPEN[0]) * torch.rand(values.shape, generator=generator)
    kinds = torch.cat([torch.randperm(_OF_A_GATE, generator=generator) % 4 for _ in values[::_OF_A_GATE]])
    kinds = kinds[: values.numel()]
    signs = torch.where(kinds == 0, -1.0, 1.0)
    return in_order_of(own, torch.where(kinds < 2, signs * 10.0**digits, values).view(own.shape))


def _holding(own: torch.Tensor, *, is_state: bool) -> torch.Tensor:
    """Small values of a tensor's shape; those of a state's matrix are large on the diagonal."""
    values = own.detach().cpu().float() * _LITTLE
    return values + _HOLDS * torch.eye(len(values)) if is_state else values


def _copies(state: Sequence[torch.Tensor], touched: Collection[int]) -> list[torch.Tensor]:
    return [piece.clone() if number in touched else piece for number, piece in enumerate(state)]
