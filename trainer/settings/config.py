"""Settings of the trainer: `TrainerConfig` for rounds, `SftConfig` for the cold start.

Invariant: settings that a round's result depends on are separate from the others, such as servers' addresses, so that a
manifest pins the former (`pinned`) and a round resumes after the latter changed. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from weir.trainer.settings.algorithms import AlgorithmConfig
from weir.trainer.settings.combinations import MOMENTS_ON_HOST, check_combination, contexts_unevenly, shared_unevenly
from weir.trainer.settings.defaults import default_lr, default_sft_lr
from weir.trainer.settings.launch import LaunchConfig
from weir.trainer.settings.lora import LoraSettings
from weir.trainer.settings.megatron import MegatronSettings
from weir.trainer.settings.mixing import MixingConfig
from weir.trainer.settings.off_policy import OffPolicyConfig
from weir.trainer.settings.pinning import NOT_PINNED
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.settings.reward_terms import KERNEL_EVAL, WHERE, RewardTerm, check_names

HookName = Literal[
    "get_group_data_meta_info", "is_valid_group", "filter_item", "normalize_group_data", "pad_group_data"
]

Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainerConfig(AlgorithmConfig, MixingConfig, LoraSettings):
    """Training rounds: choice of groups, judging, credit, optimisation, publishing."""

    groups_per_round: int = Field(default=8, ge=1, description="Largest number of groups in one round.")
    min_groups: int = Field(default=1, ge=1, description="Smallest number of ready groups for a round.")
    group_timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="An unfinished group is also ready when its sessions had no activity for this long; unset: never.",
    )
    min_timeout_group_size_ratio: float = Field(
        default=0.5, gt=0, le=1, description="Share of a group's sessions that must have finished when it times out."
    )
    groups_where: str | None = Field(
        default=None,
        description="SQL condition on the view `groups` (docs/sql.md) for the groups that rounds take.",
    )
    max_staleness: int = Field(
        default=2,
        ge=0,
        description="Largest staleness of a call's oldest token, in versions behind the round's parent; staler calls "
        "are not trained on, and a group of only such calls is consumed without being judged.",
    )
    max_sample_tokens: int | None = Field(
        default=None,
        ge=2,
        description="Largest number of prompt and output tokens of a sample; a longer call still counts in its group's "
        "mean; unset: no limit.",
    )
    train_truncated: bool = Field(
        default=True,
        description="Train on answers that ended at their token limit; off: they only count in their group's mean "
        "(DAPO's overlong filtering).",
    )
    min_valid_item_size_ratio: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of a group's sessions that must have a call left after filter_item; other groups are left "
        "out, and counted.",
    )
    max_buffer_size: int | None = Field(
        default=None,
        ge=1,
        description="Largest number of sessions in ready groups; a round consumes the oldest groups beyond it without "
        "judging them, and counts them; unset: no limit.",
    )
    seed: int = Field(default=0, ge=0, lt=2**62, description="Seed of a round's random numbers.")
    hooks: dict[HookName, str] = Field(
        default={}, description='Replacements of the five hooks by import path, e.g. {filter_item = "my_pkg.mod:keep"}.'
    )

    rewards: dict[str, RewardTerm] = Field(
        default={},
        description="Rewards whose weighted sum is trained on, by name (docs/trainer.md); unset: kernel_eval alone.",
    )
    num_correct_trials: int = Field(default=3, ge=1, description="Correctness trials for one verdict.")
    judge_seed: int = Field(default=42, ge=0, lt=2**31, description="Seed of the inputs that candidates are judged on.")
    judge_concurrency: int = Field(default=8, ge=1, description="Evaluations in flight at once.")
    judge_timeout_s: float = Field(
        default=600.0, gt=0, description="Limit for one evaluation or reward, queueing included."
    )
    judge_attempts: int = Field(
        default=4,
        ge=1,
        description="Attempts at one evaluation or reward; then the round stays open for the next start.",
    )
    judge_retry_delay_s: float = Field(
        default=1.0, ge=0, description="Wait before the second attempt; doubled for each further one."
    )
    judge_ahead_groups: int = Field(
        default=0,
        ge=0,
        description="Ready groups to judge for the next round while this one trains and publishes; 0: none.",
    )
    judge_use_cache: bool = Field(
        default=False,
        description="Accept the server's cached verdict on an equal candidate.",
    )
    kernel_eval_url: str = Field(
        default="http://127.0.0.1:8300", description="The kernel-evaluation server; unset: the one of [kernel_eval]."
    )
    kernel_eval_key: str | None = Field(
        default=None, description="API key of the kernel-evaluation server, if it needs one."
    )

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
    off_policy: OffPolicyConfig = Field(
        default=OffPolicyConfig(), description="Calls with greedy or truncated sampling, see [trainer.off_policy]."
    )
    keep_without_spread: bool = Field(
        default=False,
        description="Train on groups of equal returns, with advantage 0: they count in the step's mean, entropy and KL "
        "divergence.",
    )
    gamma: float = Field(default=0.4, ge=0, le=1, description="Discount per turn (credit = turn).")
    optimizer_steps: int = Field(
        default=1, ge=1, description="Optimiser steps per epoch; the round's samples are split among them."
    )
    epochs: int = Field(
        default=1,
        ge=1,
        description="Passes over a round's samples, each in another order; old logprobs and values are those before "
        "the first.",
    )
    max_epoch_kl: float | None = Field(
        default=None,
        gt=0,
        description="No further step of a round is taken from the second epoch on once a step's KL divergence from the "
        "sampling policy (kl_k3), in nats per token, exceeds this; unset: no limit.",
    )
    max_epoch_clip: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="The same for the share of clipped tokens (clip_low + clip_high); unset: no limit.",
    )
    lr: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="AdamW's peak learning rate; unset: by the model's size (docs/models.md), 1e-6 above 1.5B; with "
        "LoRA ten times that.",
    )
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="Decay of the learning rate over the optimiser steps of all rounds."
    )
    lr_warmup_steps: int = Field(default=0, ge=0, description="Steps of linear warm-up.")
    lr_total_steps: int | None = Field(
        default=None, ge=1, description="Steps after which the rate stays at lr_min_ratio (for linear and cosine)."
    )
    lr_min_ratio: float = Field(default=0.0, ge=0, le=1, description="Final learning rate, as a share of lr.")
    optimizer: Literal["adamw", "adamw_8bit"] = Field(
        default="adamw",
        description="adamw_8bit: AdamW whose moments take one byte a number in place of four (arXiv 2110.02861).",
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.95), description="AdamW's betas.")
    weight_decay: float = Field(default=0.0, ge=0, le=1000, description="AdamW's weight decay.")
    grad_clip: float = Field(default=1.0, gt=0, description="Largest gradient norm.")
    token_budget: int = Field(
        default=4096, ge=1, description="Tokens computed in one micro-batch; a longer sample is its own micro-batch."
    )
    share_prefixes: bool = Field(
        default=True,
        description="Compute common prefixes of samples once, where that saves time; gradients do not change.",
    )
    routing_replay: bool = Field(
        default=False,
        description="Train the tokens of a mixture with the experts that proxy.record_routed_experts recorded.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Precision of computation and published weights; the optimiser steps float32 weights in any case.",
    )
    gather_precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Precision of the weights that ranks gather for a pass. bfloat16: half the memory and traffic, "
        "and a rounded residual stream; each rank keeps its own rows in float32, which the optimiser steps.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute activations in the backward pass to save memory."
    )
    offload_activations: bool = Field(
        default=False,
        description="With gradient_checkpointing, keep the inputs of layers in CPU memory until the backward pass.",
    )
    compile_layers: bool = Field(default=False, description="Have torch.compile fuse what each layer does, for GPUs.")
    ema: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Decay of an exponential moving average of the weights, per step; unset: no average.",
    )
    published_weights: Literal["stepped", "averaged"] = Field(
        default="stepped",
        description="The weights in a version's model files, which engines serve. averaged: the average of ema; "
        "training continues from the stepped weights in either case.",
    )
    offload_optimizer: bool = Field(
        default=False, description="Keep the optimiser's moments in CPU memory between steps."
    )
    offload_weights: bool = Field(
        default=False,
        description="Keep weights, gradients and moments in CPU memory and step there (CPU Adam); a GPU gets the "
        "layers that a pass computes with. Training runs under torchrun, also with processes = 1.",
    )
    backend: str = Field(
        default="torch",
        description="Training backend: torch, megatron (Megatron-core, extra `megatron`), or an import path "
        "(docs/trainer.md).",
    )
    megatron: MegatronSettings = Field(
        default=MegatronSettings(), description="How backend = megatron divides a model, see [trainer.megatron]."
    )
    processes: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Training processes on all machines together; one per GPU. torch shards the model by FSDP2.",
    )
    replicas: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Copies of the model that the processes make up (HSDP): processes / replicas neighbours share the "
        "rows of a copy, and weights are gathered among them alone.",
    )
    context_parallel: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Neighbouring processes that share the tokens of each micro-batch (CP), for long sequences.",
    )
    launch: LaunchConfig = Field(
        default=LaunchConfig(), description="Training on several machines, see [trainer.launch]."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: CUDA where there is one.")
    torch_threads: int = Field(default=1, ge=1, le=1024, description="Threads of torch on a CPU; results depend on it.")

    proxy_urls: list[str] = Field(
        default=[],
        description="Proxies whose gates close for a publish, in addition to the catalog's; unset: that of [proxy].",
    )
    engine_urls: list[str] = Field(
        default=[],
        description="The engines that serve the weights; unset: those of [engine], or those that the router at "
        "proxy.upstream_url lists.",
    )
    router_url: str | None = Field(
        default=None, description="Router, from whose rotation an engine that failed to load is removed."
    )
    control_key: str | None = Field(default=None, description="Key of the proxies' control routes.")
    publish_timeout_s: float = Field(default=300.0, gt=0, description="Limit for one engine to load a version.")
    publish: PublishConfig = Field(default=PublishConfig(), description="The section [publish] of weir.toml.")
    takes_turns: bool = Field(default=False, description="Not set here: it follows from `placement.colocated`.")
    keep_versions: int = Field(default=4, ge=2, description="Version folders kept; a publish deletes older ones.")
    keep_state_every: int = Field(
        default=1,
        ge=1,
        description="Rounds after which a version keeps the optimiser's state; versions in between hold weights only.",
    )
    keep_full_every: int = Field(
        default=1,
        ge=1,
        description="Versions of which one is stored whole; those in between are stored as the exact difference to "
        "their parent, from which they are rebuilt (docs/weights.md). 1: all are whole.",
    )
    keep_tokens: Literal["none", "calls", "tokens"] = Field(
        default="calls",
        description="What a round keeps of its calls for `weir ui`, in rounds/N/tokens.parquet. calls: the advantage, "
        "or why a call was left out; tokens: also logprob, entropy, advantage and clip of each token, 17 bytes a token "
        "before compression.",
    )
    missing_state: Literal["replay", "fresh"] = Field(
        default="replay",
        description="A start from a version without state. replay: rounds since the last state are trained again, to "
        "the same bits; fresh: new moments and step count.",
    )
    peak_tflops: float | None = Field(
        default=None,
        gt=0,
        description="Peak of the device, in 10^12 operations per second, for the metric mfu (model FLOPs utilisation).",
    )
    tensorboard: bool = Field(default=True, description="Write TensorBoard events under the store's root.")
    lease_s: float = Field(
        default=60.0,
        gt=0,
        description="Lifetime of the lease for rounds; then another machine takes over a silent trainer's round.",
    )
    loop_trigger: Literal["groups", "time", "both"] = Field(
        default="groups",
        description="When `weir round --loop` starts a round. groups: min_groups are ready; time: every loop_every_s, "
        "if any group is ready; both: min_groups are ready and loop_every_s have passed.",
    )
    loop_every_s: float = Field(
        default=600.0, gt=0, description="Time from the start of one round to the start of the next."
    )
    loop_poll_s: float = Field(default=2.0, gt=0, description="Pause of `weir round --loop` when no group is ready.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        check_combination(self)
        return self

    def with_defaults(self, count: Callable[[], int]) -> Self:
        """These settings, with the learning rate for a model of `count()` parameters where none is set."""
        if self.lr is not None:
            return self
        return self.model_copy(update={"lr": default_lr(count(), lora=self.lora_rank is not None)})

    @property
    def peak_lr(self) -> float:
        """The learning rate, which `with_defaults` has set."""
        assert self.lr is not None
        return self.lr

    @property
    def reward_terms(self) -> dict[str, RewardTerm]:
        """The rewards by name, at least one."""
        return self.rewards or {KERNEL_EVAL: RewardTerm()}

    @property
    def timed_reward(self) -> RewardTerm | None:
        """The term of kernel evaluation, if it asks the judge to time answers."""
        term = self.reward_terms.get(KERNEL_EVAL)
        return term if term is not None and term.performance else None

    @field_validator("rewards")
    @classmethod
    def _names_make_sense(cls, rewards: dict[str, RewardTerm]) -> dict[str, RewardTerm]:
        check_names(rewards)
        return rewards

    def pinned(self) -> dict[str, Any]:
        """The settings that a round's weights depend on, as JSON values."""
        values = self.model_dump(mode="json", exclude={*NOT_PINNED, "rewards"})
        return values | {"rewards": {name: term.pinned() for name, term in self.rewards.items()}}

    def continuing(self, pinned: dict[str, Any]) -> TrainerConfig:
        """These settings, with the pinned ones of a claimed round in place of their own."""
        values = self.model_dump() | pinned
        for name, term in pinned.get("rewards", {}).items():
            if (own := self.rewards.get(name)) is not None and own.url is not None and term["url"] is not None:
                values["rewards"] = values["rewards"] | {name: term | own.model_dump(include=set(WHERE))}
        return TrainerConfig.model_validate(values)


class SftConfig(LoraSettings):
    """Supervised cold start on chat data."""

    epochs: int = Field(default=3, ge=1, description="Passes over the data.")
    batch_size: int = Field(default=8, ge=1, description="Conversations per optimiser step.")
    token_budget: int = Field(default=8192, ge=1, description="Tokens computed in one micro-batch.")
    lr: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="AdamW's peak learning rate; unset: by the model's size (docs/models.md).",
    )
    min_lr_ratio: float = Field(
        default=0.05, ge=0, le=1, description="Final learning rate of the cosine, as a share of lr."
    )
    warmup_steps: int = Field(default=20, ge=0, description="Steps of linear warm-up.")
    optimizer: Literal["adamw", "adamw_8bit"] = Field(
        default="adamw", description="adamw_8bit: AdamW whose moments take one byte a number in place of four."
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="AdamW's betas.")
    weight_decay: float = Field(default=0.01, ge=0, le=1000, description="AdamW's weight decay.")
    grad_clip: float = Field(default=1.0, gt=0, description="Largest gradient norm.")
    max_tokens: int = Field(default=4096, ge=2, description="Longest sequence; longer ones are dropped and counted.")
    validation_share: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the conversations that is held back and scored after each epoch."
    )
    checkpoint_steps: int = Field(
        default=100, ge=0, description="Steps between checkpoints, from which a killed run resumes; 0: none."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Precision of computation and of the resulting weights; the optimiser steps float32 weights.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute activations in the backward pass to save memory."
    )
    offload_activations: bool = Field(
        default=False,
        description="With gradient_checkpointing, keep the inputs of layers in CPU memory until the backward pass.",
    )
    compile_layers: bool = Field(default=False, description="Have torch.compile fuse what each layer does, for GPUs.")
    offload_weights: bool = Field(
        default=False,
        description="Keep weights, gradients and moments in CPU memory and step there (CPU Adam), under torchrun.",
    )
    processes: int = Field(
        default=1, ge=1, le=1024, description="Training processes on this machine, sharded by FSDP2; one per GPU."
    )
    replicas: int = Field(
        default=1, ge=1, le=1024, description="Copies of the model that the processes make up (HSDP)."
    )
    context_parallel: int = Field(
        default=1, ge=1, le=1024, description="Neighbouring processes that share the tokens of each micro-batch (CP)."
    )
    seed: int = Field(default=0, ge=0, lt=2**62, description="Seed of the order of the data and of new adapters.")
    version: int = Field(default=0, ge=0, description="Number of the resulting weight version.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: CUDA where there is one.")
    torch_threads: int = Field(default=1, ge=1, le=1024, description="Threads of torch on a CPU; results depend on it.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.processes % self.replicas:
            raise ValueError(shared_unevenly(self.processes, self.replicas))
        if self.processes % self.context_parallel:
            raise ValueError(contexts_unevenly(self.processes, self.context_parallel))
        if self.offload_activations and not self.gradient_checkpointing:
            raise ValueError("offload_activations keeps what gradient_checkpointing leaves: set that, too")
        if self.offload_weights and self.optimizer == "adamw_8bit":
            raise ValueError(MOMENTS_ON_HOST)
        return self

    def with_defaults(self, count: Callable[[], int]) -> Self:
        """As `TrainerConfig.with_defaults`."""
        if self.lr is not None:
            return self
        return self.model_copy(update={"lr": default_sft_lr(count(), lora=self.lora_rank is not None)})

    @property
    def peak_lr(self) -> float:
        """The learning rate, which `with_defaults` has set."""
        assert self.lr is not None
        return self.lr
