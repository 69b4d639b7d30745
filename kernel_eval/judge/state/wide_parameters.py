"""Parameters and buffers with values that a checkpoint may hold, far from those that a constructor draws.

A weight that is drawn from 0 to 0.1 says nothing of what a kernel does with negative or large ones, a variance of one
nothing of what is added to it. Some values get another sign, some are a hundred times as large or a millionth, the same
in the reference and in the candidate. Only those that the candidate's call reads where they lie: what its constructor
made of weights keeps its values. Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence

import torch

from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.state.counterparts import counterparts, loadable, view_of
from weir.kernel_eval.judge.state.questions import Subject

_MOST_BYTES = 32 << 20  # of a model
_KINDS = 8  # of values, of which three are as they were
_LEAST, _MOST = 8.0, 128.0  # times as large
_TINY = 1e-6


def wide_subjects(subject: Subject, trace: Trace, constant: Collection[str], seed: int) -> Iterator[Subject]:
    """The model and the candidate's state with wide values, then with milder ones; nothing if none may be changed.

    `subject`: as it was constructed. `trace`: of a call. `constant`: what starts the same for every seed.
    """
    model, state = subject.model, subject.state
    if not isinstance(model, torch.nn.Module) or sum(piece.numel() for piece in state) > _MOST_BYTES:
        return
    own = {name: tensor for name, tensor in loadable(model) if tensor.is_floating_point()}
    held = counterparts(model, own.keys(), state, subject.named)
    read = {storage.index for storage in trace.storages if storage.kind == "state"}
    alone = read <= {found.place.storage for found in held.values()}  # else it may read what was made of weights
    names = [
        name
        for name, found in held.items()
        if found.place.storage in read and (found.is_named if name in constant else alone)
    ]
    buffers = {name for name, _ in model.named_buffers()}
    for positive in ((), buffers, set(names)) if names else ():
        generator = torch.Generator().manual_seed(seed)
        values = {name: _drawn(own[name], generator, positive=name in positive) for name in names}
        changed, pieces = copy.deepcopy(model), _copies(state, [held[name].place.storage for name in names])
        for name, tensor in loadable(changed):
            if name in values:
                tensor.data.copy_(values[name])
                view = view_of(pieces, held[name].place)
                assert view is not None
                view.copy_(values[name].view(view.shape))
        yield Subject(changed, pieces, named=subject.named)


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
    return (values * factors).view(own.shape)


def _copies(state: Sequence[torch.Tensor], touched: Collection[int]) -> list[torch.Tensor]:
    return [piece.clone() if number in touched else piece for number, piece in enumerate(state)]
