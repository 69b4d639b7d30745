"""The coefficient of the KL divergence, steered towards a target from round to round.

Source: Ziegler et al., 2019 (arXiv 1909.08593, section 2.2). e = clip((KL - target) / target, -0.2, 0.2), then
β ← β (1 + e n / horizon) after a round of n samples. Here KL and target are means over tokens, in nats. Invariant: a
pure function of the figures of a round, the same on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from weir.trainer.learner.step_stats import StepStats
from weir.trainer.settings.config import TrainerConfig

_LARGEST_ERROR = 0.2


def steered(kl_coef: float, steps: Sequence[StepStats], config: TrainerConfig) -> float:
    """The coefficient after a round whose steps are given; unchanged without `kl_target`.

    The KL divergence is that of the first epoch, whose samples are all new.
    """
    if config.kl_target is None:
        return kl_coef
    first = [step for step in steps if step.epoch == 1]
    num_samples = sum(step.num_samples for step in first)
    divergence = sum(step.kl_reference * step.num_tokens for step in first) / sum(step.num_tokens for step in first)
    error = max(-_LARGEST_ERROR, min(_LARGEST_ERROR, divergence / config.kl_target - 1))
    return kl_coef * (1 + error * num_samples / config.kl_horizon)
