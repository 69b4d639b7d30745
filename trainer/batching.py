"""Sequences to batches: length-sorted micro-batches under a token budget, padded on the right.

Invariant: how sequences are split and ordered never changes a gradient beyond rounding, because padding lies behind
every real token (causal attention never sees it) and losses are sums over targets, divided once for the whole
optimiser step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch


class Tokens(Protocol):
    """A training sequence: token ids and which of them are targets, both of shape (T,)."""

    @property
    def ids(self) -> npt.NDArray[np.int32]: ...

    @property
    def targets(self) -> npt.NDArray[np.bool_]: ...


SequenceT = TypeVar("SequenceT", bound=Tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedBatch:
    """Sequences as one rectangle; the first token of a sequence is never a target, as nothing predicts it."""

    ids: torch.Tensor  # (B, T) int64, padded with 0 on the right
    targets: torch.Tensor  # (B, T) bool; N targets in row-major order

    @property
    def num_targets(self) -> int:
        """N, how many tokens are trained on."""
        return int(self.targets.sum())


def micro_batches(sequences: Sequence[SequenceT], token_budget: int) -> list[list[SequenceT]]:
    """Split sequences, sorted by length, so that rows × longest row stays within the budget.

    A sequence that is longer than the budget goes alone.
    """
    batches: list[list[SequenceT]] = []
    for sequence in sorted(sequences, key=lambda s: len(s.ids)):
        if batches and (len(batches[-1]) + 1) * len(sequence.ids) <= token_budget:
            batches[-1].append(sequence)
        else:
            batches.append([sequence])
    return batches


def pad(sequences: Sequence[Tokens], device: torch.device) -> PaddedBatch:
    """Stack sequences into one batch."""
    longest = max(len(sequence.ids) for sequence in sequences)
    ids = np.zeros((len(sequences), longest), dtype=np.int64)
    targets = np.zeros((len(sequences), longest), dtype=np.bool_)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.ids)] = sequence.ids
        targets[row, 1 : len(sequence.ids)] = sequence.targets[1:]
    return PaddedBatch(ids=torch.from_numpy(ids).to(device), targets=torch.from_numpy(targets).to(device))
