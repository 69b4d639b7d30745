"""Parameters and buffers that are small together with the inputs, so that what a task adds to a divisor counts.

A norm of a sum that has a bias in it is small only where that is. Vectors, and what is alike for all rows, are made as
small as `small_values.py` makes inputs; matrices and filters stay, since they multiply what is small, unless there is
no input of floats. Scales that start as ones stay near one, variances that do become small. Where a task adds to what
it makes of matrices alone (their rows' norms), these are small in calls of their own, beside usual inputs. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from weir.kernel_eval.ipc.trace import Trace
from weir.kernel_eval.judge.state.questions import Subject
from weir.kernel_eval.judge.state.wide_parameters import changeable, with_values
from weir.kernel_eval.tasks.draws.small_values import least_scale, made_small, scales


def small_subject(
    subject: Subject, trace: Trace, constant: Collection[str], seed: int, added: Sequence[float], *, has_floats: bool
) -> Subject:
    """The model and the candidate's state with small values where they may be changed; the subject itself if nowhere.

    `added`: small numbers that count beside such values. Other arguments as in `wide_subjects`. `has_floats`: whether
    inputs are floats.
    """
    own, held = changeable(subject, trace, constant)
    buffers = {name for name, _ in subject.model.named_buffers()} if own else set()
    torch.manual_seed(seed % (1 << 63))
    values = {}
    for name, tensor in own.items():
        value = _small(tensor.detach().cpu().float(), added, name in constant, name in buffers, has_floats=has_floats)
        if value is not None:
            values[name] = value
    return with_values(subject, held, values) if values else subject


def _small(
    own: torch.Tensor, added: Sequence[float], is_constant: bool, is_buffer: bool, *, has_floats: bool
) -> torch.Tensor | None:
    is_constant &= bool((own == own.flatten()[:1]).all())  # others start as the same random values each time
    if is_constant and bool(own.any()):
        return (torch.rand(own.shape) + 0.5) * (min(added) if is_buffer else 1.0)
    if is_constant:
        return made_small(torch.randn(own.shape), least_scale(added))
    return None if _is_matrix(own) and has_floats else made_small(own, least_scale(added))


def small_weights(
    subject: Subject, trace: Trace, constant: Collection[str], seed: int, added: Sequence[float]
) -> Iterator[Subject]:
    """The subject with small matrices: each row by its own scale, then all rows alike. Arguments as above."""
    own, held = changeable(subject, trace, constant)
    matrices = {name: tensor.detach().cpu().float() for name, tensor in own.items() if _is_matrix(tensor)}
    torch.manual_seed(seed % (1 << 63))
    for by_rows in (True, False) if matrices else ():
        values = {name: _made_small(matrix, added, by_rows=by_rows) for name, matrix in matrices.items()}
        yield with_values(subject, held, values)


def _made_small(matrix: torch.Tensor, added: Sequence[float], *, by_rows: bool) -> torch.Tensor:
    count = len(matrix) if by_rows else 1
    of_rows = scales(added, count)[torch.randperm(count)] if by_rows else least_scale(added)
    return made_small(matrix, of_rows.view(-1, *[1] * (matrix.dim() - 1)))


def _is_matrix(own: torch.Tensor) -> bool:
    return own.dim() > 1 and own.shape[0] > 1
