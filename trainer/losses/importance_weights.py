"""Importance weights for tokens sampled under another distribution: other numerics in the engine, or stale weights.

w = exp(logp_recomputed - logp_recorded), without gradient, where `recomputed` is under the weights that the round
starts from and `recorded` is the engine's. Invariant: a correction multiplies a token's loss and changes no
denominator: a masked token counts with loss zero. Logarithms are clamped to ±20.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from weir.trainer.losses.policy import LOG_RATIO_BOUND
from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """The importance weights of N tokens."""

    weights: torch.Tensor  # (N,)
    dropped: torch.Tensor  # (N,) bool: the weight is zero


def importance(recomputed: torch.Tensor, recorded: torch.Tensor, sequences: Sequences, level: str) -> torch.Tensor:
    """w of each of the N tokens: its own, or the product or geometric mean over its sequence, by level.

    `recomputed` and `recorded` are logprobs of shape (N,).
    """
    log_ratio = recomputed - recorded
    if level == "sequence":
        log_ratio = sequences.spread(sequences.total(log_ratio))
    elif level == "geometric":
        log_ratio = sequences.spread(sequences.mean(log_ratio))
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


@torch.no_grad()
def correct(recomputed: torch.Tensor, recorded: torch.Tensor, sequences: Sequences, config: TrainerConfig) -> Corrected:
    """The weights of `config.correction`; logprobs have shape (N,).

    `tis` (truncated importance sampling, fengyao.notion.site/off-policy-rl): min(w, high) of each token. `icepop`
    (ringtech.notion.site/icepop): w, or zero outside [low, high]. `decoupled` (AReaL, arXiv 2505.24298): w, or zero
    above high; the ratio of the loss is taken to the recomputed logprobs. `mis` (masked importance sampling,
    richardli.xyz/rl-collapse): at a level, truncated, clipped or masked; sequences with a token below the veto are
    masked.
    """
    kind, low, high = config.correction, config.correction_low, config.correction_high
    level = config.correction_level if kind == "mis" else "token"
    weights = importance(recomputed, recorded, sequences, level)
    mode = config.correction_mode if kind == "mis" else {"tis": "truncate", "icepop": "mask", "decoupled": "cap"}[kind]
    if mode == "truncate":
        weights = weights.clamp(max=high)
    elif mode == "clip":
        weights = weights.clamp(low, high)
    else:
        outside = (weights > high) | (weights < low) if mode == "mask" else weights > high
        weights = weights.masked_fill(outside, 0.0)
    if kind == "mis" and config.correction_veto > 0:
        weights = weights.masked_fill(_vetoed(recomputed - recorded, sequences, config.correction_veto), 0.0)
    return Corrected(weights=weights, dropped=weights == 0)


@torch.no_grad()
def off_policy_weights(
    recomputed: torch.Tensor, behaviour: torch.Tensor, off_policy: torch.Tensor, config: TrainerConfig
) -> torch.Tensor:
    """Weights (N,) of tokens that another distribution drew: p_recomputed / p_behaviour within bounds; 1 for others.

    Truncated per-token importance sampling (Espeholt et al., arXiv 1802.01561, section 4.1; its truncation level is
    `off_policy.high`). `recomputed` and `behaviour` are logprobs, `off_policy` marks the tokens; all have shape (N,).
    """
    weights = (recomputed - behaviour).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    bounded = weights.clamp(config.off_policy.low, config.off_policy.high)
    return torch.where(off_policy, bounded, torch.ones_like(bounded))


@torch.no_grad()
def off_policy_sequences(
    logprobs: torch.Tensor, recorded: torch.Tensor, advantages: torch.Tensor, sequences: Sequences, delta: float
) -> torch.Tensor:
    """Off-policy sequence masking (DeepSeek-V3.2, arXiv 2512.02556): the mask of excluded tokens, (N,) bool.

    Excluded are tokens with A < 0 in a sequence whose mean of logp_recorded - logp exceeds delta, in nats per token.
    """
    far = sequences.spread(sequences.mean(recorded - logprobs)) > delta
    return far & (advantages < 0)


def interpolated(logprobs: torch.Tensor, recorded: torch.Tensor, staleness: torch.Tensor) -> torch.Tensor:
    """Logprobs of a proximal policy between sampler and trained policy, without a forward pass (A-3PO, arXiv
    2512.06547).

    a logp_recorded + (1 - a) sg(logp) with a = 1 / d for tokens of staleness d, in versions, and 0 for fresh ones. All
    tensors have shape (N,).
    """
    share = torch.where(staleness > 0, 1 / staleness.clamp(min=1), 0.0).to(logprobs.dtype)
    return share * recorded + (1 - share) * logprobs.detach()


def _vetoed(log_ratio: torch.Tensor, sequences: Sequences, veto: float) -> torch.Tensor:
    return sequences.spread(sequences.lowest(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)).exp() < veto)
