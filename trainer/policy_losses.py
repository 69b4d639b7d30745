"""Policy losses by name: a loss for every target token, from logprobs alone.

Invariant: a loss is a pure function of its arguments, per token; summing, and dividing by the one denominator of the
optimiser step, is the learner's business. A further algorithm is a further entry of `POLICY_LOSSES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from weir.trainer.config import TrainerConfig

LOG_RATIO_BOUND = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLosses:
    """Losses of N tokens, and at which of them a clip took the gradient away."""

    loss: torch.Tensor  # (N,)
    clipped_low: torch.Tensor  # (N,) bool: the ratio was below 1 - clip_low, and the advantage negative
    clipped_high: torch.Tensor  # (N,) bool: the ratio was above 1 + clip_high, and the advantage positive


PolicyLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, TrainerConfig], TokenLosses]


def bounded_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor) -> torch.Tensor:
    """exp(logp - logp_old), the logarithm clamped to ±20."""
    return (logprobs - old_logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def clipped(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, config: TrainerConfig
) -> TokenLosses:
    """PPO's clipped surrogate with separate bounds (DAPO, arXiv 2503.14476) and the dual clip of arXiv 1912.09729.

    max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A); where A < 0 also min with -dual_clip A.
    """
    ratio = bounded_ratio(logprobs, old_logprobs)
    low, high = 1 - config.clip_low, 1 + config.clip_high
    loss = torch.maximum(-ratio * advantages, -ratio.clamp(low, high) * advantages)
    if config.dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -config.dual_clip * advantages), loss)
    return TokenLosses(
        loss=loss,
        clipped_low=(ratio < low) & (advantages < 0),
        clipped_high=(ratio > high) & (advantages > 0),
    )


POLICY_LOSSES: dict[str, PolicyLoss] = {"clipped": clipped}
