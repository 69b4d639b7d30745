"""Algorithms by name, and the settings that they are made of.

Invariant: an algorithm is a set of values for the settings below, nothing else: `algorithm = "gspo"` and the same
values written out give the same bits, and any of them may be set besides. What makes no sense together is
`combinations.py`. Nothing here imports torch.
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
    """From returns to gradients. What is not set is as the algorithm has it; the defaults below are dapo's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    algorithm: AlgorithmName = Field(
        default="dapo",
        description="Sets the advantage, the policy loss, its bounds and its mean, where they are unset.",
    )
    advantage: Literal["grpo", "dr_grpo", "rloo", "turn_rloo", "reinforce_plus_plus", "gae"] = Field(
        default="grpo",
        description="How returns become advantages. grpo: less the group's mean, over its deviation; dr_grpo: less the "
        "mean; rloo: less the mean of the others; turn_rloo: the same among the calls of the same turn; "
        "reinforce_plus_plus: whitened over all tokens of the round; gae: by a critic, token by token, then whitened.",
    )
    gae_gamma: float = Field(default=1.0, gt=0, le=1, description="gae: discount from token to token.")
    gae_lambda: float = Field(
        default=0.95, ge=0, le=1, description="gae: how far rewards reach past the critic's values; 1: all the way."
    )
    critic_path: str | None = Field(
        default=None, description="gae: folder of the critic's first weights; unset: the policy's."
    )
    critic_lr: float | None = Field(
        default=None, gt=0, le=1000, description="gae: the critic's learning rate; unset: lr."
    )
    value_clip: float | None = Field(
        default=0.5,
        gt=0,
        description='gae: a value moves at most this far in a round before its loss is clipped; "none": it is not.',
    )
    policy_loss: Literal["clipped", "gspo", "cispo", "reinforce", "sapo", "gmpo"] = Field(
        default="clipped", description="The policy loss."
    )
    loss_mean: Literal["token", "sequence", "sequence_sum", "constant", "group"] = Field(
        default="token",
        description="What weighs the same in a step: all tokens; all sequences; sequences by the sum of their tokens, "
        "as it is or divided by a constant; or all groups.",
    )
    loss_constant: int | None = Field(
        default=None, ge=1, description="Tokens that a sequence's sum is divided by (loss_mean = constant)."
    )
    clip_low: float = Field(
        default=0.2, gt=0, le=1, description="The probability ratio is clipped at 1 - clip_low (gmpo: its logarithm)."
    )
    clip_high: float = Field(default=0.28, gt=0, description="The probability ratio is clipped at 1 + clip_high.")
    dual_clip: float | None = Field(
        default=3.0,
        gt=1,
        description='Bound of the clipped loss where the advantage is negative, in advantages; "none": no bound.',
    )
    sapo_tau_positive: float = Field(default=1.0, gt=0, description="SAPO's temperature where the advantage is > 0.")
    sapo_tau_negative: float = Field(default=1.05, gt=0, description="SAPO's temperature elsewhere.")

    old_logprobs: Literal["recorded", "recomputed", "interpolated"] = Field(
        default="recorded",
        description="What the ratio is taken to. recorded: the engine's own; recomputed: by the weights that the round "
        "starts from; interpolated: between the engine's and the trained weights', by staleness.",
    )
    correction: Literal["none", "tis", "icepop", "mis", "decoupled"] = Field(
        default="none",
        description="Weight of a token that the engine sampled otherwise than the trainer would: w = p_recomputed / "
        "p_recorded. tis: at most high; icepop: 0 outside low and high; decoupled: 0 above high; mis: as set below.",
    )
    correction_low: float = Field(default=0.5, ge=0, description="Lower bound of w.")
    correction_high: float = Field(default=2.0, gt=0, description="Upper bound of w; 5 is usual for decoupled.")
    correction_level: Literal["token", "sequence", "geometric"] = Field(
        default="token", description="mis: w of the token, its sequence's product, or its geometric mean."
    )
    correction_mode: Literal["truncate", "clip", "mask"] = Field(
        default="mask", description="mis: at most high; into low and high; or 0 outside of them."
    )
    correction_veto: float = Field(
        default=1e-4, ge=0, description="mis: a sequence with a token of w below this is left out; 0: none is."
    )
    off_policy_delta: float | None = Field(
        default=None,
        gt=0,
        description="Sequences with a negative advantage that the trained weights find less likely than the engine did "
        "by more than this, in nats a token, are left out; unset: none is.",
    )

    kl: Literal["none", "k1", "k2", "k3"] = Field(
        default="none", description="Estimate of the divergence from a reference model."
    )
    kl_coef: float = Field(default=0.0, ge=0, description="What the divergence is multiplied by.")
    kl_in: Literal["loss", "reward"] = Field(
        default="loss",
        description="Where the divergence counts: in the loss, or taken off the reward of each token, which needs "
        "advantages of tokens (gae, reinforce_plus_plus).",
    )
    kl_ratio: bool = Field(
        default=False,
        description="Multiply the divergence by the probability ratio: its gradient is unbiased then (DeepSeek-V3.2).",
    )
    reference_path: str | None = Field(
        default=None, description="Folder of the reference model; unset: the weights of the first round's parent."
    )
    entropy_coef: float = Field(default=0.0, ge=0, description="Bonus for entropy, per nat.")
    overlong_limit: int | None = Field(
        default=None, ge=1, description="Output tokens at which DAPO's overlong penalty is whole; unset: no penalty."
    )
    overlong_buffer: int = Field(default=0, ge=0, description="Tokens below the limit at which the penalty begins.")
    overlong_penalty: float = Field(default=1.0, ge=0, description="The whole penalty, taken off the reward.")

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
