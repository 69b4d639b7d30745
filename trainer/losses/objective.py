"""The loss of a batch's tokens: the policy loss, corrected, with divergence and entropy; before any mean is taken.

Invariant: a pure function of logprobs and settings, checked against other libraries' numbers in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from weir.trainer.losses.importance_weights import correct, interpolated, off_policy_sequences
from weir.trainer.losses.kl import DIVERGENCES
from weir.trainer.losses.policy import POLICY_LOSSES, PolicyTokens, TokenLosses, bounded_ratio
from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """N target tokens of B sequences and all that is known of them; tensors of shape (N,)."""

    logprobs: torch.Tensor  # of the model that is trained, with gradient
    entropy: torch.Tensor  # of its distribution, in nats, with gradient where the settings use it
    recorded: torch.Tensor  # the engine's logprobs
    recomputed: torch.Tensor | None  # by the weights that the round started from, where the settings use them
    reference: torch.Tensor | None  # by the reference model, where the settings use it
    advantages: torch.Tensor
    staleness: torch.Tensor  # int64, versions between the weights that sampled a token and the round's first
    sequences: Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is differentiated, and what became of the tokens on the way."""

    losses: TokenLosses
    dropped: torch.Tensor  # (N,) bool: a correction took the token out of the policy loss
    divergence: torch.Tensor | None  # (N,) from the reference model


def objective(tokens: SampledTokens, config: TrainerConfig) -> Objective:
    """The loss of each token under the settings."""
    old = _old_logprobs(tokens, config)
    policy = PolicyTokens(
        logprobs=tokens.logprobs, old_logprobs=old, advantages=tokens.advantages, sequences=tokens.sequences
    )
    losses = POLICY_LOSSES[config.policy_loss](policy, config)
    loss, dropped = losses.loss, torch.zeros_like(losses.clipped_low)
    if config.correction != "none":
        corrected = correct(old, tokens.recorded, tokens.sequences, config)
        loss, dropped = loss * corrected.weights, corrected.dropped
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
    return Objective(losses=replace(losses, loss=loss), dropped=dropped, divergence=divergence)


def _old_logprobs(tokens: SampledTokens, config: TrainerConfig) -> torch.Tensor:
    if config.old_logprobs == "recorded":
        return tokens.recorded
    if config.old_logprobs == "interpolated":
        return interpolated(tokens.logprobs, tokens.recorded, tokens.staleness)
    assert tokens.recomputed is not None
    return tokens.recomputed
