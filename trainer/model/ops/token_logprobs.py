"""Logprobs and entropies of targets from hidden states, without materialising all logits.

Invariant: values and gradients are those of log_softmax(hidden @ weightᵀ / temperature) in float32, computed in blocks
of rows. The (N, V) probabilities are kept for the backward pass where they are small, and recomputed otherwise.
"""

from __future__ import annotations

from typing import Any

import torch

ROWS = 256  # rows of logits in memory at once
KEPT_BYTES = 1 << 25  # largest probabilities that are kept for the backward pass


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        temperatures: torch.Tensor | None,
        kept_bytes: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        count = len(targets)
        keep = any(ctx.needs_input_grad) and 4 * count * len(weight) <= kept_bytes
        logprobs, entropy, norms = (hidden.new_empty(count, dtype=torch.float32) for _ in range(3))
        kept = hidden.new_empty(count, len(weight), dtype=torch.float32) if keep else None
        for rows in _blocks(count):
            logits = _logits(hidden, weight, temperatures, rows)
            norms[rows] = torch.logsumexp(logits, dim=-1)
            logits -= norms[rows, None]
            logprobs[rows] = logits.gather(1, targets[rows, None]).squeeze(1)
            shares = torch.exp(logits, out=None if kept is None else kept[rows])
            entropy[rows] = -torch.einsum("nv,nv->n", shares, logits)
        ctx.save_for_backward(hidden, weight, targets, temperatures, norms, entropy, kept)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, of_logprobs: torch.Tensor | None, of_entropy: torch.Tensor | None) -> Any:
        hidden, weight, targets, temperatures, norms, entropy, kept = ctx.saved_tensors
        of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
        of_logprobs = torch.zeros_like(entropy) if of_logprobs is None else of_logprobs
        for rows in _blocks(len(targets)):
            if kept is None:
                shares = torch.exp(_logits(hidden, weight, temperatures, rows) - norms[rows, None])
            else:
                shares = kept[rows]
            of_logits = _of_logits(
                shares, of_logprobs[rows], None if of_entropy is None else of_entropy[rows], entropy[rows]
            )
            of_logits.scatter_add_(1, targets[rows, None], of_logprobs[rows, None])
            if temperatures is not None:
                of_logits /= temperatures[rows, None]
            of_logits = of_logits.to(weight.dtype)
            of_hidden[rows] = of_logits @ weight
            of_weight += of_logits.T @ hidden[rows]
        return of_hidden, of_weight.to(weight.dtype), None, None, None


def token_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    temperatures: torch.Tensor | None = None,
    *,
    kept_bytes: int = KEPT_BYTES,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies of the targets, in nats, each float32 of shape (N,).

    `hidden` has shape (N, H), `weight` (V, H), `targets` (N,) and `temperatures` (N,); None means 1.
    """
    found: tuple[torch.Tensor, torch.Tensor] = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, temperatures, kept_bytes
    )
    return found


def _blocks(count: int) -> list[slice]:
    return [slice(start, min(start + ROWS, count)) for start in range(0, count, ROWS)]


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperatures: torch.Tensor | None, rows: slice) -> torch.Tensor:
    logits = (hidden[rows] @ weight.T).float()
    return logits if temperatures is None else logits.div_(temperatures[rows, None])


def _of_logits(
    shares: torch.Tensor, of_logprobs: torch.Tensor, of_entropy: torch.Tensor | None, entropy: torch.Tensor
) -> torch.Tensor:
    """-p of_logprobs - p (log p + H) of_entropy, written over p; the caller adds of_logprobs at the target."""
    if of_entropy is None:
        return shares.mul_(-of_logprobs[:, None])
    spread = torch.xlogy(shares, shares) + shares * entropy[:, None]
    return shares.mul_(-of_logprobs[:, None]).sub_(spread.mul_(of_entropy[:, None]))
