"""Reductions of N tokens over their B sequences, and broadcasts back to the tokens.

Invariant: the tokens of a sequence are consecutive and all in the same batch, so that a reduction over a sequence never
depends on the micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """The lengths of B consecutive sequences of N targets in total."""

    lengths: torch.Tensor  # (B,) int64, each at least 1

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device | None = None) -> Sequences:
        """Sequences of these lengths. Raises `ValueError` for one without tokens."""
        if any(length < 1 for length in lengths):
            raise ValueError(f"a sequence has at least one target, got lengths {list(lengths)}")
        known = torch.tensor(list(lengths), dtype=torch.int64)
        return cls(lengths=known if device is None else known.to(device, non_blocking=True))

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over each sequence: (N,) to (B,)."""
        return torch.segment_reduce(values, "sum", lengths=self.lengths)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean over each sequence: (N,) to (B,)."""
        return self.total(values) / self.lengths

    def lowest(self, values: torch.Tensor) -> torch.Tensor:
        """The minimum over each sequence: (N,) to (B,)."""
        return torch.segment_reduce(values, "min", lengths=self.lengths)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Each sequence's value at each of its tokens: (B,) to (N,)."""
        return values.repeat_interleave(self.lengths)
