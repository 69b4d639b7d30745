"""Estimates of KL(trained ‖ reference) at sampled tokens, by name (J. Schulman, joschu.net/blog/kl-approx.html).

With x = logp - logp_ref in nats: k1 is x, unbiased with high variance; k2 is x² / 2, biased with low variance; k3 is
exp(-x) - 1 + x, unbiased and never negative, with x clamped to ±20.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from weir.trainer.losses.policy import LOG_RATIO_BOUND

Divergence = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def k1(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """x, shape (N,)."""
    return logprobs - reference


def k2(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """x² / 2, shape (N,)."""
    return (logprobs - reference).square() / 2


def k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """exp(-x) - 1 + x, shape (N,)."""
    ahead = (reference - logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return ahead.exp() - 1 - ahead


DIVERGENCES: dict[str, Divergence] = {"k1": k1, "k2": k2, "k3": k3}
