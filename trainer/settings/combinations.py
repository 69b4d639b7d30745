"""Refuses invalid combinations of trainer settings: contradictions, and settings without effect.

Invariant: an accepted setting that differs from its default has an effect; one that would be ignored is refused by name
when the settings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weir.trainer.settings.algorithms import ALGORITHMS, TOKEN_ADVANTAGES

if TYPE_CHECKING:
    from weir.trainer.settings.config import TrainerConfig


BUILT_IN = ("torch", "megatron")
MOMENTS_ON_HOST = (
    "offload_weights steps in CPU memory, with float32 moments: remove optimizer = adamw_8bit, or keep the weights on "
    "the device"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Settings that have no effect unless another setting enables them."""

    settings: tuple[str, ...]
    where: str  # the enabling setting, in words
    holds: Callable[[TrainerConfig], bool]


DEPENDENCIES = (
    Dependency(
        settings=("clip_low", "clip_high"),
        where="a policy_loss with bounds: clipped, gspo, cispo or gmpo",
        holds=lambda config: config.policy_loss not in ("sapo", "reinforce"),
    ),
    Dependency(
        settings=("dual_clip",), where="policy_loss = clipped", holds=lambda config: config.policy_loss == "clipped"
    ),
    Dependency(
        settings=("sapo_tau_positive", "sapo_tau_negative"),
        where="policy_loss = sapo",
        holds=lambda config: config.policy_loss == "sapo",
    ),
    Dependency(
        settings=("gae_gamma", "gae_lambda", "critic_path", "critic_lr", "value_clip"),
        where="advantage = gae",
        holds=lambda config: config.advantage == "gae",
    ),
    Dependency(settings=("gamma",), where="credit = turn", holds=lambda config: config.credit == "turn"),
    Dependency(
        settings=("keep_without_spread",),
        where="an advantage that compares the returns of a group: any but gae and reinforce_plus_plus",
        holds=lambda config: config.advantage not in TOKEN_ADVANTAGES,
    ),
    Dependency(
        settings=("loss_constant",),
        where="loss_mean = constant",
        holds=lambda config: config.loss_mean == "constant",
    ),
    Dependency(settings=("correction_high",), where="a correction", holds=lambda config: config.correction != "none"),
    Dependency(
        settings=("correction_low",),
        where="a correction with a lower bound: icepop, or mis with correction_mode = clip or mask",
        holds=lambda config: _has_lower_bound(config),
    ),
    Dependency(
        settings=("correction_level", "correction_mode", "correction_veto"),
        where="correction = mis",
        holds=lambda config: config.correction == "mis",
    ),
    Dependency(
        settings=("kl_in", "kl_ratio", "reference_path", "kl_target"),
        where="a kl",
        holds=lambda config: config.kl != "none",
    ),
    Dependency(
        settings=("lora_alpha", "lora_targets"),
        where="a lora_rank",
        holds=lambda config: config.lora_rank is not None,
    ),
    Dependency(
        settings=("keep_state_every",),
        where="backend = torch or megatron, which keep the state between rounds (`weir round --loop`)",
        holds=lambda config: config.backend in BUILT_IN,
    ),
    Dependency(
        settings=("gather_precision",),
        where="backend = torch with precision = bfloat16 and processes = 2 or more",
        holds=lambda config: (config.backend, config.precision) == ("torch", "bfloat16") and config.processes > 1,
    ),
    Dependency(
        settings=("missing_state",),
        where="a keep_state_every above 1",
        holds=lambda config: config.keep_state_every > 1,
    ),
    Dependency(settings=("lora_rank",), where="backend = torch", holds=lambda config: config.backend == "torch"),
    Dependency(settings=("kl_horizon",), where="a kl_target", holds=lambda config: config.kl_target is not None),
    Dependency(
        settings=("max_epoch_kl", "max_epoch_clip"), where="epochs = 2 or more", holds=lambda config: config.epochs > 1
    ),
    Dependency(
        settings=("overlong_buffer", "overlong_penalty"),
        where="an overlong_limit",
        holds=lambda config: config.overlong_limit is not None,
    ),
    Dependency(settings=("sft_tokens", "sft_seed"), where="sft_files", holds=lambda config: bool(config.sft_files)),
    Dependency(
        settings=("published_weights",), where="an ema, such as 0.99", holds=lambda config: config.ema is not None
    ),
    Dependency(
        settings=("offload_activations",),
        where="gradient_checkpointing = true with backend = torch",
        holds=lambda config: config.gradient_checkpointing and config.backend == "torch",
    ),
    Dependency(
        settings=("offload_weights", "replicas", "compile_layers"),
        where="backend = torch, whose weights FSDP2 shards",
        holds=lambda config: config.backend == "torch",
    ),
    Dependency(
        settings=("optimizer",),
        where="backend = torch; the others step with optimisers of their own",
        holds=lambda config: config.backend == "torch",
    ),
    Dependency(
        settings=("context_parallel",),
        where="backend = torch; Megatron-core's is context in [trainer.megatron]",
        holds=lambda config: config.backend == "torch",
    ),
    Dependency(
        settings=("routing_replay",),
        where="backend = torch or megatron",
        holds=lambda config: config.backend in BUILT_IN,
    ),
    Dependency(
        settings=("processes",), where="backend = torch or megatron", holds=lambda config: config.backend in BUILT_IN
    ),
    Dependency(settings=("megatron",), where="backend = megatron", holds=lambda config: config.backend == "megatron"),
    Dependency(
        settings=("share_prefixes",),
        where="backend = torch; megatron computes packed rows",
        holds=lambda config: config.backend != "megatron",
    ),
    Dependency(
        settings=("lr_total_steps", "lr_min_ratio"),
        where="an lr_schedule that falls: linear or cosine",
        holds=lambda config: config.lr_schedule != "constant",
    ),
    Dependency(
        settings=("min_timeout_group_size_ratio",),
        where="a group_timeout_s",
        holds=lambda config: config.group_timeout_s is not None,
    ),
)


def check_combination(config: TrainerConfig) -> None:
    """Raise `ValueError` where settings contradict each other, or one of them would be ignored."""
    for wrong, why in _contradictions(config):
        if wrong:
            raise ValueError(why)
    for name, where in _without_effect(config):
        raise ValueError(
            f"{name} = {getattr(config, name)} has no effect here: it belongs to {where}; set that, or remove it"
        )


def shared_unevenly(processes: int, replicas: int) -> str:
    """Why so many processes cannot hold so many copies of a model."""
    return (
        f"replicas = {replicas} copies of the model cannot be shared evenly by processes = {processes}: set processes "
        "to a multiple of it"
    )


def contexts_unevenly(processes: int, context: int) -> str:
    """Why so many processes cannot share their micro-batches by so many."""
    return (
        f"context_parallel = {context} processes share each micro-batch, and processes = {processes} is no multiple of "
        "it: set one"
    )


def _without_effect(config: TrainerConfig) -> Iterator[tuple[str, str]]:
    for dependency in DEPENDENCIES:
        if not dependency.holds(config):
            yield from ((name, dependency.where) for name in dependency.settings if _departs(config, name))


def _departs(config: TrainerConfig, name: str) -> bool:
    """Whether a setting is neither its default nor the algorithm's value."""
    value = getattr(config, name)
    default: Any = type(config).model_fields[name].default
    return value not in (default, ALGORITHMS[config.algorithm].get(name, default))


def _has_lower_bound(config: TrainerConfig) -> bool:
    return config.correction == "icepop" or (config.correction == "mis" and config.correction_mode != "truncate")


def _of_lora(config: TrainerConfig) -> Iterator[tuple[bool, str]]:
    yield (
        config.lora_rank is not None and config.advantage == "gae",
        "advantage = gae trains a critic with all its weights: choose another algorithm for lora_rank",
    )
    yield (
        config.lora_rank is None and config.publish.form == "adapter",
        "publish.form = adapter publishes what LoRA trains: set lora_rank",
    )
    yield (
        config.lora_rank is not None and config.reference_path is not None,
        "with lora_rank the reference is the frozen first weights: remove reference_path",
    )


def _contradictions(config: TrainerConfig) -> Iterator[tuple[bool, str]]:
    yield from _of_credit(config)
    yield from _of_corrections(config)
    yield from _of_divergence(config)
    yield from _of_lora(config)
    nodes = config.launch.nodes
    yield from _of_megatron(config)
    yield (
        config.processes % nodes > 0 or (nodes > 1 and config.backend not in BUILT_IN),
        f"processes = {config.processes} cannot be shared evenly by launch.nodes = {nodes}: set a multiple of it",
    )
    yield (
        config.processes % config.replicas > 0,
        shared_unevenly(config.processes, config.replicas),
    )
    yield (
        config.processes % config.context_parallel > 0,
        contexts_unevenly(config.processes, config.context_parallel),
    )
    yield (
        config.offload_weights and config.offload_optimizer,
        "offload_weights keeps the moments in CPU memory and steps there: remove offload_optimizer",
    )
    yield (
        config.offload_weights and config.optimizer == "adamw_8bit",
        MOMENTS_ON_HOST,
    )
    yield (
        config.routing_replay and config.compile_layers,
        "compile_layers does not go with routing_replay, whose routers are watched: remove one of them",
    )
    yield (
        config.keep_state_every > config.keep_versions,
        f"keep_state_every = {config.keep_state_every} is above keep_versions = {config.keep_versions}: the last state "
        "would be deleted before the next one is kept",
    )
    yield (
        config.loss_mean == "constant" and config.loss_constant is None,
        "loss_mean = constant divides by loss_constant: set it to the longest answer that agents may ask for",
    )
    yield (
        config.overlong_limit is not None and config.overlong_buffer >= config.overlong_limit,
        f"overlong_buffer = {config.overlong_buffer} is not below overlong_limit = {config.overlong_limit}",
    )
    total = config.lr_total_steps
    yield (
        config.lr_schedule != "constant" and total is None,
        f"lr_schedule = {config.lr_schedule} falls over lr_total_steps: set them",
    )
    yield (
        total is not None and config.lr_warmup_steps >= total,
        f"lr_warmup_steps = {config.lr_warmup_steps} is not below lr_total_steps = {total}",
    )


def _of_megatron(config: TrainerConfig) -> Iterator[tuple[bool, str]]:
    if config.backend != "megatron":
        return
    layout = config.megatron
    copy = layout.tensor * layout.pipeline * layout.context
    yield (
        config.processes % copy > 0,
        f"processes = {config.processes} is no multiple of tensor × pipeline × context = {copy} of [trainer.megatron], "
        "which make up one copy of the model",
    )
    yield (
        layout.chunks > 1 and layout.pipeline == 1,
        f"chunks = {layout.chunks} divides the layers of a pipeline's stages: set pipeline = 2 or more",
    )
    yield (
        layout.optimizer_offload_fraction == 1 and config.offload_optimizer,
        "optimizer_offload_fraction = 1 keeps all moments in CPU memory and steps there: remove offload_optimizer",
    )
    yield (
        layout.optimizer_offload_fraction > 0 and config.precision == "float32",
        "optimizer_offload_fraction steps float32 copies of weights in bfloat16: set precision = bfloat16",
    )
    yield (
        layout.fp8 is not None and config.precision == "float32",
        f'fp8 = "{layout.fp8}" of [trainer.megatron] rounds from weights in bfloat16: set precision = bfloat16',
    )
    experts = layout.expert * layout.expert_tensor * layout.pipeline
    yield (
        config.processes % experts > 0,
        f"processes = {config.processes} is no multiple of expert × expert_tensor × pipeline = {experts} of "
        "[trainer.megatron], which hold the experts once",
    )


def _of_credit(config: TrainerConfig) -> Iterator[tuple[bool, str]]:
    of_tokens = config.advantage in TOKEN_ADVANTAGES
    yield (
        config.advantage == "turn_rloo" and config.credit != "turn",
        "advantage = turn_rloo compares turns with each other: set credit = turn",
    )
    yield (
        config.policy_loss == "gmpo" and of_tokens,
        f"policy_loss = gmpo has one advantage for a sequence, and {config.advantage} one for each token",
    )
    yield (
        config.off_policy_delta is not None and of_tokens,
        "off_policy_delta leaves out sequences by the sign of their advantage, and "
        f"{config.advantage} has one for each token",
    )


def _of_corrections(config: TrainerConfig) -> Iterator[tuple[bool, str]]:
    corrected = config.correction != "none"
    yield (
        corrected and config.old_logprobs == "recorded",
        f"correction = {config.correction} weighs recomputed against recorded logprobs: set old_logprobs = "
        "recomputed, or the correction would count twice",
    )
    yield (
        config.old_logprobs == "interpolated" and config.correction != "decoupled",
        "old_logprobs = interpolated belongs to correction = decoupled",
    )
    yield (
        config.policy_loss == "reinforce" and not corrected,
        "policy_loss = reinforce has no ratio for stale samples: set a correction, or policy_loss = clipped",
    )
    yield (
        _has_lower_bound(config) and config.correction_low >= config.correction_high,
        f"correction_low = {config.correction_low} is not below correction_high = {config.correction_high}",
    )


def _of_divergence(config: TrainerConfig) -> Iterator[tuple[bool, str]]:
    in_reward = config.kl_in == "reward"
    yield (
        in_reward and (config.kl == "none" or config.kl_ratio),
        "kl_in = reward subtracts the KL divergence from rewards: set kl and kl_coef, and not kl_ratio",
    )
    yield (
        in_reward and config.advantage not in TOKEN_ADVANTAGES,
        f"kl_in = reward needs advantages of tokens, and advantage = {config.advantage} compares whole calls: "
        "set kl_in = loss",
    )
    yield (
        (config.kl == "none") != (config.kl_coef == 0),
        f"kl = {config.kl} and kl_coef = {config.kl_coef}: set both, or neither",
    )
