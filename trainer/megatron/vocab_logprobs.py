"""Logprobs and entropies of targets where each rank of a group holds a part of the vocabulary's rows.

Invariant: values and gradients are those of `model/ops/token_logprobs.py` over the whole vocabulary, in blocks of
rows; of each row only three sums and a maximum cross the group, never logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

ROWS = 256  # rows of logits in memory at once


@dataclass(frozen=True, slots=True)
class VocabularyPart:
    """The ids that a rank holds: `first`, and `count` from it on; further rows of its matrix are padding."""

    first: int
    count: int
    group: Any

    @classmethod
    def of(cls, vocabulary: int, height: int, rank: int, group: Any) -> VocabularyPart:
        """The part of a rank whose matrix has `height` rows."""
        first = rank * height
        return cls(first, max(0, min(vocabulary - first, height)), group)


class _VocabLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        temperatures: torch.Tensor,
        part: VocabularyPart,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        logprobs, entropy, norms = (hidden.new_empty(len(targets), dtype=torch.float32) for _ in range(3))
        for rows in _blocks(len(targets)):
            logits = _logits(hidden, weight, temperatures, rows, part)
            highest = logits.amax(dim=-1) if part.count else logits.new_full((len(logits),), -torch.inf)
            dist.all_reduce(highest, dist.ReduceOp.MAX, group=part.group)
            shares = torch.exp(logits - highest[:, None])
            at, is_here = _at(targets[rows], part)
            chosen = logits.gather(1, at[:, None]).squeeze(1) if part.count else torch.zeros_like(highest)
            sums = torch.stack(
                [shares.sum(dim=-1), torch.einsum("nv,nv->n", shares, logits), chosen.masked_fill(~is_here, 0.0)]
            )
            dist.all_reduce(sums, group=part.group)
            norms[rows] = highest + sums[0].log()
            logprobs[rows] = sums[2] - norms[rows]
            entropy[rows] = norms[rows] - sums[1] / sums[0]
        ctx.save_for_backward(hidden, weight, targets, temperatures, norms, entropy)
        ctx.part = part
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, of_logprobs: torch.Tensor | None, of_entropy: torch.Tensor | None) -> Any:
        hidden, weight, targets, temperatures, norms, entropy = ctx.saved_tensors
        part: VocabularyPart = ctx.part
        of_hidden, of_weight = torch.zeros_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        of_logprobs = torch.zeros_like(entropy) if of_logprobs is None else of_logprobs
        for rows in _blocks(len(targets)):
            if not part.count:
                continue
            logs = _logits(hidden, weight, temperatures, rows, part) - norms[rows, None]
            shares = logs.exp()
            of_logits = shares * -of_logprobs[rows, None]
            if of_entropy is not None:
                of_logits -= shares * (logs + entropy[rows, None]) * of_entropy[rows, None]
            at, is_here = _at(targets[rows], part)
            of_logits.scatter_add_(1, at[:, None], (of_logprobs[rows] * is_here)[:, None])
            of_logits = (of_logits / temperatures[rows, None]).to(weight.dtype)
            of_hidden[rows] = of_logits @ weight[: part.count]
            of_weight[: part.count] += of_logits.T @ hidden[rows]
        return of_hidden, of_weight.to(weight.dtype), None, None, None


def vocab_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    temperatures: torch.Tensor,
    part: VocabularyPart,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies of targets, in nats, each float32 of shape (N,), the same on all ranks of the group.

    `hidden` has shape (N, H) and is the same on all ranks, whose gradients by it are to be added; `weight` are this
    rank's rows, (V / ranks, H); `targets` and `temperatures` have shape (N,).
    """
    found: tuple[torch.Tensor, torch.Tensor] = _VocabLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, temperatures, part
    )
    return found


def whole_logits(hidden: torch.Tensor, weight: torch.Tensor, part: VocabularyPart, vocabulary: int) -> torch.Tensor:
    """Logits over the whole vocabulary, (N, V), on every rank: for a few rows at once, without gradient."""
    own = (hidden @ weight.T).float()
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(part.group))]
    dist.all_gather(parts, own, group=part.group)
    return torch.cat(parts, dim=1)[:, :vocabulary]


def _blocks(count: int) -> list[slice]:
    return [slice(start, min(start + ROWS, count)) for start in range(0, count, ROWS)]


def _logits(
    hidden: torch.Tensor, weight: torch.Tensor, temperatures: torch.Tensor, rows: slice, part: VocabularyPart
) -> torch.Tensor:
    """This rank's logits of some rows, without padding."""
    return (hidden[rows] @ weight[: part.count].T).float() / temperatures[rows, None]


def _at(targets: torch.Tensor, part: VocabularyPart) -> tuple[torch.Tensor, torch.Tensor]:
    """Where targets lie among this rank's ids, and which of them are here at all."""
    at = targets - part.first
    is_here = (at >= 0) & (at < part.count)
    return at.clamp(0, max(part.count - 1, 0)), is_here
