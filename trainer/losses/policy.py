"""Policy losses by name: one loss for each target token, from logprobs and advantages.

Invariant: a loss is a pure function, before normalisation (`normalization.py`) and importance weights
(`importance_weights.py`). A loss of whole sequences has the sequence's value at each of its tokens, so that the mean
over the sequence is that value. In formulas r = exp(logp - logp_old), A is the advantage and sg stops the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig

LOG_RATIO_BOUND = 20.0
GSPO_LOG_RATIO_BOUND = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """The input of a policy loss: N target tokens of B sequences; tensors have shape (N,)."""

    logprobs: torch.Tensor  # of the trained model, with gradient
    old_logprobs: torch.Tensor  # the denominator of the ratio
    advantages: torch.Tensor
    sequences: Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLosses:
    """Losses of N tokens, and the tokens whose gradient was clipped."""

    loss: torch.Tensor  # (N,)
    clipped_low: torch.Tensor  # (N,) bool: the ratio is below the lower bound and clipped
    clipped_high: torch.Tensor  # (N,) bool: the ratio is above the upper bound and clipped


PolicyLoss = Callable[[PolicyTokens, TrainerConfig], TokenLosses]


def bounded_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor) -> torch.Tensor:
    """exp(logp - logp_old), the logarithm clamped to ±20."""
    return (logprobs - old_logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def clipped(tokens: PolicyTokens, config: TrainerConfig) -> TokenLosses:
    """PPO's clipped surrogate (arXiv 1707.06347), separate bounds (DAPO, 2503.14476), dual clip (1912.09729).

    max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A); where A < 0 also min with -dual_clip A.
    """
    return _clipped(bounded_ratio(tokens.logprobs, tokens.old_logprobs), tokens.advantages, config, config.dual_clip)


def gspo(tokens: PolicyTokens, config: TrainerConfig) -> TokenLosses:
    """GSPO-token (arXiv 2507.18071): the clipped surrogate of s = exp(mean over the sequence of logp - logp_old).

    Each token's ratio is sg(s) exp(logp - sg(logp)): the value is the sequence's, the gradient the token's.
    """
    mean = tokens.sequences.spread(tokens.sequences.mean((tokens.logprobs - tokens.old_logprobs).detach()))
    log_ratio = tokens.logprobs - tokens.logprobs.detach() + mean
    return _clipped(log_ratio.clamp(max=GSPO_LOG_RATIO_BOUND).exp(), tokens.advantages, config, None)


def cispo(tokens: PolicyTokens, config: TrainerConfig) -> TokenLosses:
    """CISPO (arXiv 2506.13585): -sg(clip(r, 1 - clip_low, 1 + clip_high)) A logp. Every token keeps a gradient."""
    ratio = bounded_ratio(tokens.logprobs, tokens.old_logprobs).detach()
    low, high = 1 - config.clip_low, 1 + config.clip_high
    return TokenLosses(
        loss=-ratio.clamp(low, high) * tokens.advantages * tokens.logprobs,
        clipped_low=ratio < low,
        clipped_high=ratio > high,
    )


def reinforce(tokens: PolicyTokens, config: TrainerConfig) -> TokenLosses:
    """REINFORCE: -A logp; off-policy samples need a correction."""
    del config
    never = torch.zeros_like(tokens.advantages, dtype=torch.bool)
    return TokenLosses(loss=-tokens.advantages * tokens.logprobs, clipped_low=never, clipped_high=never)


def sapo(tokens: PolicyTokens, config: TrainerConfig) -> TokenLosses:
    """SAPO (arXiv 2511.20347): -A (4 / tau) sigmoid(tau (r - 1)), tau by the sign of A: a soft gate for the clip."""
    ratio = bounded_ratio(tokens.logprobs, tokens.old_logprobs)
    tau = torch.where(tokens.advantages > 0, config.sapo_tau_positive, config.sapo_tau_negative).to(ratio.dtype)
    never = torch.zeros_like(tokens.advantages, dtype=torch.bool)
    loss = -tokens.advantages * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    return TokenLosses(loss=loss, clipped_low=never, clipped_high=never)


def gmpo(tokens: PolicyTokens, config: TrainerConfig) -> TokenLosses:
    """GMPO (arXiv 2507.20673): -A times the geometric mean of the sequence's ratios, each clipped in logarithms.

    The clip to [-clip_low, clip_high] is one-sided, as PPO's is: it takes the side that is worse for the sign of A. A
    sequence's A is the mean over its tokens.
    """
    log_ratio = tokens.logprobs - tokens.old_logprobs
    bounded = log_ratio.clamp(-config.clip_low, config.clip_high)
    sign = tokens.advantages.sign()
    worse = sign * torch.minimum(sign * log_ratio, sign * bounded)
    sequences = tokens.sequences
    loss = -sequences.mean(tokens.advantages) * sequences.mean(worse).exp()
    return TokenLosses(
        loss=sequences.spread(loss),
        clipped_low=(log_ratio < -config.clip_low) & (sign < 0),
        clipped_high=(log_ratio > config.clip_high) & (sign > 0),
    )


def _clipped(
    ratio: torch.Tensor, advantages: torch.Tensor, config: TrainerConfig, dual_clip: float | None
) -> TokenLosses:
    low, high = 1 - config.clip_low, 1 + config.clip_high
    loss = torch.maximum(-ratio * advantages, -ratio.clamp(low, high) * advantages)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return TokenLosses(
        loss=loss,
        clipped_low=(ratio < low) & (advantages < 0),
        clipped_high=(ratio > high) & (advantages > 0),
    )


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "clipped": clipped,
    "gspo": gspo,
    "cispo": cispo,
    "reinforce": reinforce,
    "sapo": sapo,
    "gmpo": gmpo,
}
