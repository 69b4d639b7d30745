"""The loss of each token of a batch: policy loss, importance weights, KL and entropy terms, before any mean.

Invariant: a pure function of logprobs and settings; the tests compare it with other libraries' numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from weir.trainer.losses.importance_weights import (
    correct,
    interpolated,
    off_policy_sequences,
    off_policy_weights,
)
from weir.trainer.losses.kl import DIVERGENCES
from weir.trainer.losses.policy import POLICY_LOSSES, PolicyTokens, TokenLosses, bounded_ratio
from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """N target tokens of B sequences; tensors have shape (N,), logprobs and entropies are in nats."""

    logprobs: torch.Tensor  # of the trained model, with gradient
    entropy: torch.Tensor  # of its distribution, with gradient where the settings use it
    recorded: torch.Tensor  # the engine's logprobs; of off-policy tokens, those of the distribution that drew them
    recomputed: torch.Tensor | None  # under the weights that the round started from, where they are used, else 0
    reference: torch.Tensor | None  # under the reference model, where the settings use it
    advantages: torch.Tensor
    staleness: torch.Tensor  # int64, versions from the weights that sampled a token to those the round started from
    sequences: Sequences
    off_policy: torch.Tensor | None = None  # (N,) bool: drawn from another distribution; None: no token was

    @property
    def before(self) -> torch.Tensor:
        """Logprobs under the policy that drew the tokens; of off-policy ones, under the round's first weights."""
        if self.off_policy is None:
            return self.recorded
        assert self.recomputed is not None
        return torch.where(self.off_policy, self.recomputed, self.recorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The losses to differentiate, and statistics of the tokens."""

    losses: TokenLosses
    dropped: torch.Tensor  # (N,) bool: a correction excluded the token from the policy loss
    divergence: torch.Tensor | None  # (N,) KL estimate to the reference model
    off_policy_weights: torch.Tensor | None = None  # (N,) bounded; 1 for on-policy tokens


def objective(tokens: SampledTokens, config: TrainerConfig) -> Objective:
    """The loss of each token under the settings: w·L_policy + kl_coef·KL - entropy_coef·H."""
    old = _old_logprobs(tokens, config)
    policy = PolicyTokens(
        logprobs=tokens.logprobs, old_logprobs=old, advantages=tokens.advantages, sequences=tokens.sequences
    )
    losses = POLICY_LOSSES[config.policy_loss](policy, config)
    loss, dropped = losses.loss, torch.zeros_like(losses.clipped_low)
    if config.correction != "none":
        corrected = correct(old, tokens.recorded, tokens.sequences, config)
        weights, dropped = corrected.weights, corrected.dropped
        if tokens.off_policy is not None:
            weights, dropped = weights.masked_fill(tokens.off_policy, 1.0), dropped & ~tokens.off_policy
        loss = loss * weights
    weights_off = None
    if tokens.off_policy is not None:
        weights_off = off_policy_weights(old, tokens.recorded, tokens.off_policy, config)
        loss = loss * weights_off
    if config.off_policy_delta is not None:
        far = off_policy_sequences(
            tokens.logprobs, tokens.recorded, tokens.advantages, tokens.sequences, config.off_policy_delta
        )
        loss, dropped = loss.masked_fill(far, 0.0), dropped | far
    divergence = None
    if config.kl != "none":
        assert tokens.reference is not None
        divergence = DIVERGENCES[config.kl](tokens.logprobs, tokens.reference)
        ratio = bounded_ratio(tokens.logprobs, old) if config.kl_ratio else 1.0
        if config.kl_in == "loss":
            loss = loss + config.kl_coef * ratio * divergence
    if config.entropy_coef > 0:
        loss = loss - config.entropy_coef * tokens.entropy
    return Objective(
        losses=replace(losses, loss=loss), dropped=dropped, divergence=divergence, off_policy_weights=weights_off
    )


def _old_logprobs(tokens: SampledTokens, config: TrainerConfig) -> torch.Tensor:
    """The denominator of the ratio; for off-policy tokens, the logprobs under the round's first weights."""
    old = _old_by_settings(tokens, config)
    if tokens.off_policy is None:
        return old
    assert tokens.recomputed is not None
    return torch.where(tokens.off_policy, tokens.recomputed, old)


def _old_by_settings(tokens: SampledTokens, config: TrainerConfig) -> torch.Tensor:
    if config.old_logprobs == "recorded":
        return tokens.recorded
    if config.old_logprobs == "interpolated":
        return interpolated(tokens.logprobs, tokens.recorded, tokens.staleness)
    assert tokens.recomputed is not None
    return tokens.recomputed
