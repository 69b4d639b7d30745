"""How much of a distribution top_k, top_p and min_p keep: the denominator of the one that tokens were drawn from.

Invariant: without gradient and a block of rows at a time, like `token_logprobs`. The order is SGLang's and the
embedded engine's: penalties on the logits, temperature, softmax; then a token is kept if fewer than top_k are more
probable, if no more than top_p lies before it, and if it has at least min_p times the best one's probability, all three
judged on the same probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

ROWS = 64  # rows of logits that are sorted at once


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationRows:
    """Sampling parameters at N targets, each of shape (N,). Row i's output so far is targets[first[i]:i]."""

    top_k: torch.Tensor  # int64
    top_p: torch.Tensor
    min_p: torch.Tensor
    frequency_penalty: torch.Tensor
    presence_penalty: torch.Tensor
    repetition_penalty: torch.Tensor
    penalised: list[bool]
    first: list[int]


@torch.no_grad()
def kept_mass(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    temperatures: torch.Tensor,
    rows: TruncationRows,
) -> torch.Tensor:
    """log Z of each target, where Z is the probability of all kept tokens, and 1 where the target is kept: (N, 2).

    `hidden` has shape (N, H), `weight` (V, H), `targets` and `temperatures` (N,).
    """
    return kept_mass_of(lambda block: (hidden[block] @ weight.T).float(), targets, temperatures, rows)


@torch.no_grad()
def kept_mass_of(
    logits_of: Callable[[slice], torch.Tensor], targets: torch.Tensor, temperatures: torch.Tensor, rows: TruncationRows
) -> torch.Tensor:
    """As `kept_mass`, of logits (n, V) that are computed for some targets at a time, in memory of their own."""
    found = torch.empty(len(targets), 2, device=targets.device)
    for start in range(0, len(targets), ROWS):
        block = slice(start, min(start + ROWS, len(targets)))
        logits = logits_of(block)
        for row in range(block.start, block.stop):
            if rows.penalised[row]:
                _penalise(logits[row - start], targets[rows.first[row] : row], rows, row)
        probs, order = (logits / temperatures[block, None]).softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
        kept = _kept(probs, rows, block)
        found[block, 0] = probs.masked_fill(~kept, 0.0).sum(dim=-1).log()
        found[block, 1] = (kept & (order == targets[block, None])).any(dim=-1).float()
    return found


def _kept(probs: torch.Tensor, rows: TruncationRows, block: slice) -> torch.Tensor:
    """Which of the sorted probabilities, (n, V), are kept."""
    top_k, top_p, min_p = (column[block, None] for column in (rows.top_k, rows.top_p, rows.min_p))
    before = probs.cumsum(dim=-1) - probs
    rank = torch.arange(probs.shape[-1], device=probs.device)
    return (rank < top_k) & ((before <= top_p) | (top_p >= 1.0)) & (probs >= min_p * probs[:, :1])


def _penalise(logits: torch.Tensor, drawn: torch.Tensor, rows: TruncationRows, row: int) -> None:
    """Subtract frequency and presence penalties from the logits (V,) of tokens drawn before, then scale them."""
    counts = torch.bincount(drawn, minlength=len(logits))
    seen = counts > 0
    logits -= rows.frequency_penalty[row] * counts + rows.presence_penalty[row] * seen
    scale = rows.repetition_penalty[row]
    logits.copy_(torch.where(seen, torch.where(logits < 0, logits * scale, logits / scale), logits))
