"""Logprobs and entropies of targets from hidden states, without materialising all logits.

Invariant: values and gradients are those of log_softmax(hidden @ weightᵀ / temperature) in float32, computed in blocks
of rows. The (N, V) probabilities are kept for the backward pass where they are small, and recomputed otherwise.

On a GPU in half precision, what is computed of a block of logits is compiled into kernels that read and write each
logit once or twice, in half precision; one by one, the operations would pass over float32 logits twenty times.
"""

from __future__ import annotations

from typing import Any

import torch

ROWS = 256  # rows of logits in memory at once
FUSED_ROWS = 1024  # the same where they stay in half precision: the head's gradient is summed once for each block
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
        ctx.fused = is_fused(hidden) and 4 * count * len(weight) > kept_bytes
        if ctx.fused:
            found = [
                _measured(hidden[rows] @ weight.T, targets[rows], None if temperatures is None else temperatures[rows])
                for rows in _blocks(count, FUSED_ROWS)
            ]
            norms, logprobs, entropy = (torch.cat(parts) for parts in zip(*found, strict=True))
            ctx.save_for_backward(hidden, weight, targets, temperatures, norms, entropy, None)
            return logprobs, entropy
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
        if ctx.fused:
            return _fused_backward(ctx.saved_tensors, of_logprobs, of_entropy)
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


def is_fused(hidden: torch.Tensor) -> bool:
    """Whether blocks of logits are computed by compiled kernels."""
    return hidden.is_cuda and hidden.dtype in (torch.bfloat16, torch.float16)


def _fused_backward(saved: Any, of_logprobs: torch.Tensor | None, of_entropy: torch.Tensor | None) -> Any:
    hidden, weight, targets, temperatures, norms, entropy, _ = saved
    of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
    of_logprobs = torch.zeros_like(entropy) if of_logprobs is None else of_logprobs
    for rows in _blocks(len(targets), FUSED_ROWS):
        of_logits = _gradient(
            hidden[rows] @ weight.T,
            targets[rows],
            None if temperatures is None else temperatures[rows],
            norms[rows],
            entropy[rows],
            of_logprobs[rows],
            None if of_entropy is None else of_entropy[rows],
        )
        of_hidden[rows] = of_logits @ weight
        add_product(of_weight, of_logits.T, hidden[rows])
    return of_hidden, of_weight.to(weight.dtype), None, None, None


def add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add the product of two matrices in half precision to a float32 matrix, not rounded in between."""
    if left.is_cuda:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)  # CPUs have no such kernel
    else:
        total += left.float() @ right.float()


@torch.compile
def _measured(
    logits: torch.Tensor, targets: torch.Tensor, temperatures: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """log(sum(exp)) of rows of logits, the logprobs of their targets, and their entropies, in float32."""
    scaled = logits.float() if temperatures is None else logits.float() / temperatures[:, None]
    norms = torch.logsumexp(scaled, dim=-1)
    every = scaled - norms[:, None]
    return norms, every.gather(1, targets[:, None])[:, 0], -(every.exp() * every).sum(-1)


@torch.compile
def _gradient(
    logits: torch.Tensor,
    targets: torch.Tensor,
    temperatures: torch.Tensor | None,
    norms: torch.Tensor,
    entropy: torch.Tensor,
    of_logprobs: torch.Tensor,
    of_entropy: torch.Tensor | None,
) -> torch.Tensor:
    """The gradient of rows of logits, in their type: (1[target] - p) of_logprobs - p (log p + H) of_entropy, over t."""
    every = (logits.float() if temperatures is None else logits.float() / temperatures[:, None]) - norms[:, None]
    shares = every.exp()
    found = -shares * of_logprobs[:, None]
    if of_entropy is not None:
        found = found - shares * (every + entropy[:, None]) * of_entropy[:, None]
    is_target = torch.arange(logits.shape[1], device=logits.device)[None] == targets[:, None]
    found = found + torch.where(is_target, of_logprobs[:, None], 0.0)
    return (found if temperatures is None else found / temperatures[:, None]).to(logits.dtype)


def _blocks(count: int, most: int = ROWS) -> list[slice]:
    return [slice(start, min(start + most, count)) for start in range(0, count, most)]


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
