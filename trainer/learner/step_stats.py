"""Statistics of an optimiser step, accumulated over tokens so that they do not depend on the micro-batches.

Invariant: micro-batches contribute sums, minima and maxima; means are taken once, at the end. `kl_k3` is J. Schulman's
estimate r - 1 - log r with r = p_trained / p_recorded (joschu.net/blog/kl-approx.html).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from weir.store.parquet.round_tokens import TokenTrace
from weir.trainer.losses.objective import Objective, SampledTokens
from weir.trainer.losses.policy import LOG_RATIO_BOUND

# Differences of logprobs are counted in bins of equal width in log10, so that ranks and micro-batches can be added.
DIFF_DECADES = (-8, 2)  # nats
BINS_IN_DECADE = 16
DIFF_BINS = (DIFF_DECADES[1] - DIFF_DECADES[0]) * BINS_IN_DECADE


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """Statistics of one optimiser step; means are over its target tokens, logprobs and entropies in nats."""

    num_samples: int
    num_tokens: int
    tree_ratio: float  # tokens of all samples over those computed
    loss: float
    grad_norm: float
    kl_k3: float  # from the recorded policy
    kl_reference: float  # from the reference model, by the estimate of the settings
    entropy: float
    clip_low: float  # share of tokens
    clip_high: float
    dropped: float  # share of tokens that a correction excluded
    ratio_min: float
    ratio_mean: float
    ratio_max: float
    ess: float  # effective sample size of the ratios, as a share of the tokens
    logprob_diff_mean: float  # |trainer - recorded| over all tokens
    logprob_diff_max: float
    fresh_tokens: int  # sampled by the weights that the round started from
    fresh_logprob_diff_mean: float
    fresh_logprob_diff_max: float
    fresh_logprob_diff_p50: float  # quantiles are upper ends of bins, 16 % wide
    fresh_logprob_diff_p90: float
    fresh_logprob_diff_p99: float
    off_policy_tokens: int  # drawn from another distribution than the policy's
    off_policy_outside: int  # of these, tokens that the recomputed truncation would not have kept
    off_policy_clipped: float  # share of these whose importance weight reached a bound
    off_policy_weight_mean: float  # bounded
    off_policy_ess: float  # effective sample size of the bounded weights, as a share of these tokens
    value_loss: float | None  # of the critic, where there is one
    sft_loss: float | None  # of the supervised rows, where there are any; not part of `loss`
    balance_loss: float | None = None  # of a mixture of experts that asks for one; not part of `loss`
    epoch: int = 1
    kl_coef: float | None = None  # where it is steered by kl_target
    stopped_by: str | None = None  # the setting that refused the step; only an untaken last one has it
    traces: tuple[TokenTrace, ...] = field(default=(), compare=False, repr=False)  # where the round keeps tokens


@dataclass(slots=True)
class TokenStats:
    """Sums, minima and maxima over tokens."""

    num_tokens: int = 0
    sample_tokens: int = 0
    computed_tokens: int = 0
    loss: float = 0.0
    kl_sum: float = 0.0
    reference_kl_sum: float = 0.0
    entropy_sum: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    dropped: int = 0
    ratio_sum: float = 0.0
    ratio_square_sum: float = 0.0
    ratio_min: float = math.inf
    ratio_max: float = 0.0
    diff_sum: float = 0.0
    diff_max: float = 0.0
    fresh_tokens: int = 0
    fresh_diff_sum: float = 0.0
    fresh_diff_max: float = 0.0
    fresh_diff_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(DIFF_BINS, np.int64))
    off_policy_tokens: int = 0
    off_policy_outside: int = 0
    off_policy_clipped: int = 0
    off_policy_weight_sum: float = 0.0
    off_policy_square_sum: float = 0.0
    balance_loss: float = 0.0  # of the whole step, where there is one
    traces: list[TokenTrace] = field(default_factory=list)

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        tokens: SampledTokens,
        objective: Objective,
        weighted: torch.Tensor,
        *,
        is_fresh: torch.Tensor,
        sample_tokens: int,
        computed_tokens: int,
        outside: int = 0,
        bounds: tuple[float, float] = (0.0, math.inf),
    ) -> TokenStats:
        """The statistics of one micro-batch of N target tokens.

        `weighted` are the losses times their weights in the step, shape (N,); `is_fresh`, shape (N,), marks the tokens
        sampled by the weights that the round started from, `outside` is the number of off-policy ones that truncation
        would not keep, and `bounds` are those of their weights.
        """
        diff = tokens.logprobs - tokens.before
        log_ratio = diff.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        ratio, diff = log_ratio.exp(), diff.abs()
        fresh_diff = diff[is_fresh if tokens.off_policy is None else is_fresh & ~tokens.off_policy]
        weights = _weights_of(tokens, objective)
        return cls(
            num_tokens=ratio.numel(),
            sample_tokens=sample_tokens,
            computed_tokens=computed_tokens,
            loss=float(weighted.sum()),
            kl_sum=float((ratio - 1 - log_ratio).sum()),
            reference_kl_sum=0.0 if objective.divergence is None else float(objective.divergence.sum()),
            entropy_sum=float(tokens.entropy.sum()),
            clipped_low=int(objective.losses.clipped_low.sum()),
            clipped_high=int(objective.losses.clipped_high.sum()),
            dropped=int(objective.dropped.sum()),
            ratio_sum=float(ratio.sum()),
            ratio_square_sum=float(ratio.square().sum()),
            ratio_min=float(ratio.min()),
            ratio_max=float(ratio.max()),
            diff_sum=float(diff.sum()),
            diff_max=float(diff.max()),
            fresh_tokens=fresh_diff.numel(),
            fresh_diff_sum=float(fresh_diff.sum()),
            fresh_diff_max=float(fresh_diff.max()) if fresh_diff.numel() else 0.0,
            fresh_diff_counts=_counts(fresh_diff),
            off_policy_tokens=weights.numel(),
            off_policy_outside=outside,
            off_policy_clipped=int(((weights <= bounds[0]) | (weights >= bounds[1])).sum()),
            off_policy_weight_sum=float(weights.sum()),
            off_policy_square_sum=float(weights.square().sum()),
        )

    def add(self, other: TokenStats) -> None:
        """Add the statistics of another micro-batch."""
        for name in self.__slots__:
            merge = min if name.endswith("_min") else max if name.endswith("_max") else _plus
            setattr(self, name, merge(getattr(self, name), getattr(other, name)))

    def _fresh_diff_quantile(self, share: float) -> float:
        """The upper end of the bin up to which that share of the tokens lies, in nats; 0 without tokens."""
        if not self.fresh_tokens:
            return 0.0
        place = int(np.searchsorted(self.fresh_diff_counts.cumsum(), share * self.fresh_tokens))
        return float(min(10 ** (DIFF_DECADES[0] + (place + 1) / BINS_IN_DECADE), self.fresh_diff_max))

    def _off_policy_ess(self) -> float:
        """(Σw)² / (n Σw²); 1 without off-policy tokens."""
        spread = self.off_policy_tokens * self.off_policy_square_sum
        return self.off_policy_weight_sum**2 / spread if spread > 0 else 1.0

    def finished(
        self, *, grad_norm: float, num_samples: int, value_loss: float | None = None, sft_loss: float | None = None
    ) -> StepStats:
        """The statistics of the step, with means over its tokens."""
        return StepStats(
            num_samples=num_samples,
            num_tokens=self.num_tokens,
            tree_ratio=self.sample_tokens / self.computed_tokens,
            loss=self.loss,
            grad_norm=grad_norm,
            kl_k3=self.kl_sum / self.num_tokens,
            kl_reference=self.reference_kl_sum / self.num_tokens,
            entropy=self.entropy_sum / self.num_tokens,
            clip_low=self.clipped_low / self.num_tokens,
            clip_high=self.clipped_high / self.num_tokens,
            dropped=self.dropped / self.num_tokens,
            ratio_min=self.ratio_min,
            ratio_mean=self.ratio_sum / self.num_tokens,
            ratio_max=self.ratio_max,
            ess=self.ratio_sum**2 / (self.num_tokens * self.ratio_square_sum),
            logprob_diff_mean=self.diff_sum / self.num_tokens,
            logprob_diff_max=self.diff_max,
            fresh_tokens=self.fresh_tokens,
            fresh_logprob_diff_mean=self.fresh_diff_sum / max(self.fresh_tokens, 1),
            fresh_logprob_diff_max=self.fresh_diff_max,
            fresh_logprob_diff_p50=self._fresh_diff_quantile(0.5),
            fresh_logprob_diff_p90=self._fresh_diff_quantile(0.9),
            fresh_logprob_diff_p99=self._fresh_diff_quantile(0.99),
            off_policy_tokens=self.off_policy_tokens,
            off_policy_outside=self.off_policy_outside,
            off_policy_clipped=self.off_policy_clipped / max(self.off_policy_tokens, 1),
            off_policy_weight_mean=self.off_policy_weight_sum / max(self.off_policy_tokens, 1),
            off_policy_ess=self._off_policy_ess(),
            value_loss=value_loss,
            sft_loss=sft_loss,
            balance_loss=self.balance_loss or None,
            traces=tuple(self.traces),
        )


def _weights_of(tokens: SampledTokens, objective: Objective) -> torch.Tensor:
    """The bounded importance weights of the off-policy tokens."""
    if tokens.off_policy is None or objective.off_policy_weights is None:
        return tokens.recorded.new_empty(0)
    return objective.off_policy_weights[tokens.off_policy]


def _counts(diff: torch.Tensor) -> npt.NDArray[np.int64]:
    """How many differences, shape (N,), in nats, are in each bin; the first and last bin take what lies outside."""
    first, last = DIFF_DECADES
    decades = diff.float().log10().nan_to_num(last, last, first).clamp(first, last)  # NaN: with the greatest
    places = ((decades - first) * BINS_IN_DECADE).long().clamp_max(DIFF_BINS - 1)
    return torch.bincount(places, minlength=DIFF_BINS).cpu().numpy()


def _plus(left: Any, right: Any) -> Any:
    return left + right
