"""Algorithms by name, as presets of the settings below.

Invariant: an algorithm is a set of values for settings and nothing else: `algorithm = "gspo"` and the same values
written out yield the same bits, and each value may be overridden. `combinations.py` refuses invalid combinations. This
module imports no torch.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

AlgorithmName = Literal[
    "grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_plus_plus", "ppo", "sapo", "gmpo"
]

# Advantages that differ from token to token of a sequence.
TOKEN_ADVANTAGES = frozenset({"gae", "reinforce_plus_plus"})

ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"advantage": "grpo", "policy_loss": "clipped", "loss_mean": "sequence", "clip_high": 0.2},
    "dr_grpo": {"advantage": "dr_grpo", "policy_loss": "clipped", "loss_mean": "constant", "clip_high": 0.2},
    "dapo": {"advantage": "grpo", "policy_loss": "clipped", "loss_mean": "token", "clip_high": 0.28},
    "gspo": {
        "advantage": "grpo",
        "policy_loss": "gspo",
        "loss_mean": "sequence",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
    },
    "cispo": {"advantage": "grpo", "policy_loss": "cispo", "loss_mean": "token", "clip_low": 1.0, "clip_high": 0.28},
    "rloo": {"advantage": "rloo", "policy_loss": "clipped", "loss_mean": "token", "clip_high": 0.2},
    "reinforce_plus_plus": {
        "advantage": "reinforce_plus_plus",
        "policy_loss": "clipped",
        "loss_mean": "token",
        "clip_high": 0.2,
    },
    "ppo": {"advantage": "gae", "policy_loss": "clipped", "loss_mean": "token", "clip_high": 0.2},
    "sapo": {"advantage": "grpo", "policy_loss": "sapo", "loss_mean": "sequence"},
    "gmpo": {
        "advantage": "grpo",
        "policy_loss": "gmpo",
        "loss_mean": "sequence",
        "clip_low": 0.4,
        "clip_high": 0.4,
    },
}


class AlgorithmConfig(BaseModel):
    """Settings from returns to gradients. Unset ones have the algorithm's values; the defaults below are dapo's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    algorithm: AlgorithmName = Field(
        default="dapo",
        description="Preset of advantage, policy_loss, loss_mean, clip_low and clip_high, where they are unset.",
    )
    advantage: Literal["grpo", "dr_grpo", "rloo", "turn_rloo", "reinforce_plus_plus", "gae"] = Field(
        default="grpo",
        description="How advantages come from returns R. grpo: (R - mean) / std of the group; dr_grpo: R - mean; "
        "rloo: R - mean of the others; turn_rloo: rloo among calls of the same turn; reinforce_plus_plus: whitened "
        "over all tokens of the round; gae: GAE with a critic, whitened over all tokens.",
    )
    gae_gamma: float = Field(default=1.0, gt=0, le=1, description="gae: discount per token.")
    gae_lambda: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="gae: lambda, from 0 (critic only, low variance) to 1 (rewards only, no bias).",
    )
    critic_path: str | None = Field(
        default=None, description="gae: folder of the critic's initial weights; unset: the policy's."
    )
    critic_lr: float | None = Field(
        default=None, gt=0, le=1000, description="gae: the critic's learning rate; unset: lr."
    )
    value_clip: float | None = Field(
        default=0.5,
        gt=0,
        description='gae: clip range of the value loss around the old value; "none": no clipping.',
    )
    policy_loss: Literal["clipped", "gspo", "cispo", "reinforce", "sapo", "gmpo"] = Field(
        default="clipped", description="The policy loss."
    )
    loss_mean: Literal["token", "sequence", "sequence_sum", "constant", "group"] = Field(
        default="token",
        description="Normalisation of a step's loss. token: mean over tokens; sequence: mean over sequences of token "
        "means; sequence_sum: mean over sequences of token sums; constant: the same divided by loss_constant; group: "
        "mean over groups of token means.",
    )
    loss_constant: int | None = Field(
        default=None, ge=1, description="Divisor of a sequence's sum, in tokens (loss_mean = constant)."
    )
    clip_low: float = Field(
        default=0.2, gt=0, le=1, description="The probability ratio is clipped at 1 - clip_low (gmpo: its logarithm)."
    )
    clip_high: float = Field(default=0.28, gt=0, description="The probability ratio is clipped at 1 + clip_high.")
    dual_clip: float | None = Field(
        default=3.0,
        gt=1,
        description='Upper bound of the clipped loss at negative advantages, as a multiple of |A|; "none": no bound.',
    )
    sapo_tau_positive: float = Field(default=1.0, gt=0, description="sapo: temperature at positive advantages.")
    sapo_tau_negative: float = Field(default=1.05, gt=0, description="sapo: temperature at other advantages.")

    old_logprobs: Literal["recorded", "recomputed", "interpolated"] = Field(
        default="recorded",
        description="Denominator of the probability ratio. recorded: the engine's logprobs; recomputed: under the "
        "weights that the round starts from; interpolated: between the engine's and the trained model's, by staleness.",
    )
    correction: Literal["none", "tis", "icepop", "mis", "decoupled"] = Field(
        default="none",
        description="Importance weight of a token, w = p_recomputed / p_recorded. tis: truncated at high; icepop: 0 "
        "outside [low, high]; decoupled: 0 above high; mis: by correction_level, _mode and _veto.",
    )
    correction_low: float = Field(default=0.5, ge=0, description="Lower bound of w.")
    correction_high: float = Field(default=2.0, gt=0, description="Upper bound of w; 5 is usual for decoupled.")
    correction_level: Literal["token", "sequence", "geometric"] = Field(
        default="token", description="mis: w of the token, or the product or geometric mean over its sequence."
    )
    correction_mode: Literal["truncate", "clip", "mask"] = Field(
        default="mask", description="mis: w truncated at high, clipped to [low, high], or masked (0) outside."
    )
    correction_veto: float = Field(
        default=1e-4, ge=0, description="mis: a sequence with a token whose w is below this is masked; 0: none is."
    )
    off_policy_delta: float | None = Field(
        default=None,
        gt=0,
        description="Off-policy sequence masking: tokens with a negative advantage are masked in sequences whose mean "
        "of logp_recorded - logp exceeds this, in nats per token; unset: none is.",
    )

    kl: Literal["none", "k1", "k2", "k3"] = Field(
        default="none", description="Estimate of the KL divergence to a reference model."
    )
    kl_coef: float = Field(default=0.0, ge=0, description="Coefficient of the KL divergence.")
    kl_target: float | None = Field(
        default=None,
        gt=0,
        description="KL divergence per token, in nats, towards which kl_coef is steered from round to round "
        "(Ziegler et al., 2019); unset: kl_coef stays.",
    )
    kl_horizon: int = Field(
        default=10_000, ge=1, description="Samples over which kl_coef adapts: smaller is faster (kl_target)."
    )
    kl_in: Literal["loss", "reward"] = Field(
        default="loss",
        description="Where the KL divergence enters: added to the loss, or subtracted from each token's reward, which "
        "needs token-level advantages (gae, reinforce_plus_plus).",
    )
    kl_ratio: bool = Field(
        default=False,
        description="Multiply the KL estimate by the probability ratio, for an unbiased gradient (DeepSeek-V3.2).",
    )
    reference_path: str | None = Field(
        default=None, description="Folder of the reference model; unset: the weights of the first round's parent."
    )
    entropy_coef: float = Field(default=0.0, ge=0, description="Coefficient of the entropy bonus, per nat.")
    overlong_limit: int | None = Field(
        default=None, ge=1, description="Output tokens from which DAPO's overlong penalty is full; unset: no penalty."
    )
    overlong_buffer: int = Field(
        default=0, ge=0, description="Tokens below overlong_limit over which the penalty grows linearly."
    )
    overlong_penalty: float = Field(default=1.0, ge=0, description="The full penalty, subtracted from the reward.")

    @field_validator("dual_clip", "value_clip", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value == "none" else value

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return ALGORITHMS.get(str(values.get("algorithm", "dapo")), {}) | values
