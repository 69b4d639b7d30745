"""Settings of the trainer: `TrainerConfig` for rounds, `SftConfig` for the cold start.

Invariant: what a round's result depends on is told apart from where servers are, so that a round's manifest can pin the
first (`pinned`) and be continued after the second has changed. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from weir.trainer.settings.algorithms import AlgorithmConfig
from weir.trainer.settings.combinations import check_combination
from weir.trainer.settings.mixing import MixingConfig
from weir.trainer.settings.reward_terms import KERNEL_EVAL, WHERE, RewardTerm, check_names

HookName = Literal[
    "get_group_data_meta_info", "is_valid_group", "filter_item", "normalize_group_data", "pad_group_data"
]

Beta = Annotated[float, Field(ge=0, lt=1)]

# Settings that may differ between two attempts at the same round without changing its weights.
_NOT_PINNED = frozenset(
    {
        "proxy_urls",
        "engine_urls",
        "router_url",
        "control_key",
        "kernel_eval_url",
        "kernel_eval_key",
        "judge_concurrency",
        "judge_timeout_s",
        "judge_attempts",
        "judge_retry_delay_s",
        "judge_ahead_groups",
        "publish_timeout_s",
        "keep_versions",
        "min_groups",
        "group_timeout_s",
        "min_timeout_group_size_ratio",
        "groups_where",
        "peak_tflops",
        "loop_trigger",
        "loop_every_s",
        "tensorboard",
        "loop_poll_s",
        "lease_s",
    }
)


class TrainerConfig(AlgorithmConfig, MixingConfig):
    """Training rounds: which groups, how they are judged and credited, how the weights are stepped and published."""

    groups_per_round: int = Field(default=8, ge=1, description="Finished groups that one round takes at most.")
    min_groups: int = Field(default=1, ge=1, description="With fewer finished groups there is no round.")
    group_timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="A group is also taken when nothing was heard of its sessions for this long; unset: never.",
    )
    min_timeout_group_size_ratio: float = Field(
        default=0.5, gt=0, le=1, description="Part of a group's sessions that must have finished when it times out."
    )
    groups_where: str | None = Field(
        default=None,
        description="Only groups for which this condition on the view `groups` (docs/sql.md) holds are taken.",
    )
    max_staleness: int = Field(
        default=2,
        ge=0,
        description="A call is trained on if its oldest token is at most this many versions behind the round's parent; "
        "a group without any such call is consumed without being judged.",
    )
    max_sample_tokens: int | None = Field(
        default=None,
        ge=2,
        description="A call whose prompt and output have more tokens is judged and compared, but not trained on; "
        "unset: none is too long.",
    )
    train_truncated: bool = Field(
        default=True,
        description="Train on answers that ended at their token limit; off: they are judged and compared only (DAPO's "
        "overlong filtering).",
    )
    seed: int = Field(default=0, ge=0, lt=2**62, description="Seed of everything that a round draws.")
    hooks: dict[HookName, str] = Field(
        default={}, description='Replacements of the five hooks by import path, e.g. {filter_item = "my_pkg.mod:keep"}.'
    )

    rewards: dict[str, RewardTerm] = Field(
        default={},
        description="What a reward is the weighted sum of, by name (docs/trainer.md); unset: kernel_eval alone.",
    )
    num_correct_trials: int = Field(default=3, ge=1, description="Correctness trials behind one reward.")
    judge_seed: int = Field(default=42, ge=0, lt=2**31, description="Seed of the inputs that candidates are judged on.")
    judge_concurrency: int = Field(default=8, ge=1, description="Evaluations in flight at once.")
    judge_timeout_s: float = Field(
        default=600.0, gt=0, description="Limit for one evaluation or reward, queueing included."
    )
    judge_attempts: int = Field(
        default=4, ge=1, description="Tries of one evaluation before the round is left open for later."
    )
    judge_retry_delay_s: float = Field(default=1.0, ge=0, description="Wait before the second try; doubled each time.")
    judge_ahead_groups: int = Field(
        default=0,
        ge=0,
        description="Ready groups that are judged for the next round while this one trains and publishes; 0: none.",
    )
    judge_use_cache: bool = Field(
        default=False,
        description="Let the server answer with the verdict on an equal candidate that agents asked about before.",
    )
    kernel_eval_url: str = Field(
        default="http://127.0.0.1:8300", description="The kernel-evaluation server; unset: the one of [kernel_eval]."
    )
    kernel_eval_key: str | None = Field(default=None, description="Its API key, where it wants one.")

    credit: Literal["turn", "trajectory"] = Field(
        default="turn",
        description="turn: a call's return is the discounted sum of its own and later rewards of its session; "
        "trajectory: a branch's last reward counts for all its calls.",
    )
    branches: Literal["all", "last", "longest"] = Field(
        default="all",
        description="Which branches of a session are judged and trained on. last: the one whose last call started "
        "last; longest: the one with the most sampled tokens.",
    )
    keep_without_spread: bool = Field(
        default=False,
        description="Train on groups whose returns are all alike, with advantage 0: they count in the step's mean, "
        "entropy and divergence.",
    )
    gamma: float = Field(default=0.4, ge=0, le=1, description="Discount from one turn to the next (credit = turn).")
    optimizer_steps: int = Field(default=1, ge=1, description="Optimiser steps that a round's samples are split into.")
    lr: float = Field(default=4e-4, gt=0, le=1000, description="AdamW's highest learning rate.")
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="How the rate falls over the optimiser steps of all rounds."
    )
    lr_warmup_steps: int = Field(default=0, ge=0, description="Steps of linear warm-up.")
    lr_total_steps: int | None = Field(
        default=None, ge=1, description="Steps after which the rate stays at lr_min_ratio (linear and cosine need it)."
    )
    lr_min_ratio: float = Field(default=0.0, ge=0, le=1, description="Where the rate ends, as a part of lr.")
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.95), description="AdamW's betas.")
    weight_decay: float = Field(default=0.0, ge=0, le=1000, description="AdamW's weight decay.")
    grad_clip: float = Field(default=1.0, gt=0, description="Largest gradient norm.")
    token_budget: int = Field(
        default=4096, ge=1, description="Tokens that one micro-batch computes; a longer sample goes alone."
    )
    share_prefixes: bool = Field(
        default=True,
        description="Compute a prefix that samples have in common once, where that pays; the gradient is the same.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="What is computed with and published; the weights that are stepped are float32 in any case.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Compute activations again in the backward pass instead of keeping them."
    )
    ema: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Decay of an exponential average of the weights, kept from step to step; unset: none is kept.",
    )
    published_weights: Literal["stepped", "averaged"] = Field(
        default="stepped",
        description="Which weights a version's model files are, and so what is served and evaluated. averaged: those "
        "of ema; training goes on from the stepped ones in either case.",
    )
    offload_optimizer: bool = Field(
        default=False, description="Keep the optimiser's moments in the CPU's memory between steps."
    )
    backend: str = Field(
        default="torch",
        description="What trains: torch, or the import path of another backend (docs/trainer.md).",
    )
    processes: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Processes that share a round's training on this machine, over FSDP2; one a GPU.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: CUDA where there is one.")
    torch_threads: int = Field(default=1, ge=1, le=1024, description="Threads of torch on a CPU; results depend on it.")

    proxy_urls: list[str] = Field(
        default=[],
        description="Proxies whose gates close for a publish, besides those of the catalog; unset: that of [proxy].",
    )
    engine_urls: list[str] = Field(
        default=[], description="Every engine that is to serve the weights; unset: those of [engine]."
    )
    router_url: str | None = Field(
        default=None, description="Router from which an engine that failed to load is taken out."
    )
    control_key: str | None = Field(default=None, description="Key of the proxies' control routes.")
    publish_timeout_s: float = Field(default=300.0, gt=0, description="Limit for one engine to load a version.")
    keep_versions: int = Field(default=4, ge=2, description="Version folders kept; older ones go after a publish.")
    peak_tflops: float | None = Field(
        default=None,
        gt=0,
        description="What the device can do at best, in 10^12 operations a second; set: rounds tell their "
        "share of it (mfu).",
    )
    tensorboard: bool = Field(default=True, description="Write TensorBoard events under the store's root.")
    lease_s: float = Field(
        default=60.0,
        gt=0,
        description="How long another machine waits for a trainer that went silent before it goes on with its round.",
    )
    loop_trigger: Literal["groups", "time", "both"] = Field(
        default="groups",
        description="When `weir round --loop` starts a round. groups: min_groups are ready; time: every loop_every_s, "
        "if any is ready; both: min_groups are ready and loop_every_s have passed.",
    )
    loop_every_s: float = Field(default=600.0, gt=0, description="From the start of one round to that of the next.")
    loop_poll_s: float = Field(default=2.0, gt=0, description="Pause of `weir round --loop` when no group is ready.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        check_combination(self)
        return self

    @property
    def reward_terms(self) -> dict[str, RewardTerm]:
        """The rewards by name, at least one."""
        return self.rewards or {KERNEL_EVAL: RewardTerm()}

    @field_validator("rewards")
    @classmethod
    def _names_make_sense(cls, rewards: dict[str, RewardTerm]) -> dict[str, RewardTerm]:
        check_names(rewards)
        return rewards

    def pinned(self) -> dict[str, Any]:
        """The settings that a round's weights depend on, as JSON values."""
        values = self.model_dump(mode="json", exclude={*_NOT_PINNED, "rewards"})
        return values | {"rewards": {name: term.pinned() for name, term in self.rewards.items()}}

    def continuing(self, pinned: dict[str, Any]) -> TrainerConfig:
        """These settings with another round's pinned ones in place of our own."""
        values = self.model_dump() | pinned
        for name, term in pinned.get("rewards", {}).items():
            if (own := self.rewards.get(name)) is not None and own.url is not None and term["url"] is not None:
                values["rewards"] = values["rewards"] | {name: term | own.model_dump(include=set(WHERE))}
        return TrainerConfig.model_validate(values)


def config_hash(pinned: dict[str, Any]) -> str:
    """sha256 of the canonical JSON of pinned settings."""
    return hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()


class SftConfig(BaseModel):
    """Cold start on chat data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int = Field(default=3, ge=1, description="Passes over the data.")
    batch_size: int = Field(default=8, ge=1, description="Conversations in one optimiser step.")
    token_budget: int = Field(default=8192, ge=1, description="Tokens that one micro-batch computes.")
    lr: float = Field(default=2e-3, gt=0, le=1000, description="AdamW's highest learning rate.")
    min_lr_ratio: float = Field(default=0.05, ge=0, le=1, description="Where the cosine ends, as a part of lr.")
    warmup_steps: int = Field(default=20, ge=0, description="Steps of linear warm-up.")
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="AdamW's betas.")
    weight_decay: float = Field(default=0.01, ge=0, le=1000, description="AdamW's weight decay.")
    grad_clip: float = Field(default=1.0, gt=0, description="Largest gradient norm.")
    max_tokens: int = Field(default=4096, ge=2, description="Longer sequences are left out, and counted.")
    validation_share: float = Field(
        default=0.0, ge=0, lt=1, description="Part of the conversations that is held back and scored after each epoch."
    )
    checkpoint_steps: int = Field(
        default=100, ge=0, description="Steps between checkpoints that a killed run goes on from; 0: none."
    )
    seed: int = Field(default=0, ge=0, lt=2**62, description="Seed of the order of the data.")
    version: int = Field(default=0, ge=0, description="The weight version that the result is called.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: CUDA where there is one.")
    torch_threads: int = Field(default=1, ge=1, le=1024, description="Threads of torch on a CPU; results depend on it.")
