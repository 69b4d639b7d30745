"""Combinations of settings: contradictions are refused by name, accepted settings have an effect."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from weir.trainer.credit.samples import Sample
from weir.trainer.hooks import Group, GroupItem, HookedGroups
from weir.trainer.learner.critic import value_loss
from weir.trainer.learner.optimizer import learning_rate
from weir.trainer.losses.gae import token_credit
from weir.trainer.losses.kl import DIVERGENCES
from weir.trainer.losses.normalization import LOSS_MEANS
from weir.trainer.losses.objective import SampledTokens, objective
from weir.trainer.losses.sequences import Sequences
from weir.trainer.rounds.prepare import credit_calls, overlong_penalty
from weir.trainer.settings.algorithms import ALGORITHMS, AlgorithmConfig
from weir.trainer.settings.combinations import DEPENDENCIES
from weir.trainer.settings.config import TrainerConfig

CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"correction": "tis"}, "would count twice"),
    ({"old_logprobs": "interpolated"}, "belongs to correction = decoupled"),
    ({"old_logprobs": "interpolated", "correction": "tis"}, "belongs to correction = decoupled"),
    ({"policy_loss": "reinforce"}, "set a correction"),
    ({"algorithm": "dr_grpo"}, "set it to the longest answer"),
    ({"offload_weights": True, "optimizer": "adamw_8bit"}, "remove optimizer = adamw_8bit"),
    ({"kl": "k3"}, "set both, or neither"),
    ({"kl_coef": 0.1}, "set both, or neither"),
    ({"old_logprobs": "recomputed", "correction": "icepop", "correction_low": 3.0}, "is not below correction_high"),
    ({"overlong_limit": 5, "overlong_buffer": 5}, "is not below overlong_limit"),
    ({"kl_in": "reward", "algorithm": "ppo"}, "set kl and kl_coef"),
    ({"kl_in": "reward", "algorithm": "ppo", "kl": "k1", "kl_coef": 0.1, "kl_ratio": True}, "and not kl_ratio"),
    ({"kl_in": "reward", "kl": "k1", "kl_coef": 0.1}, "compares whole calls"),
    ({"policy_loss": "gmpo", "advantage": "gae"}, "one for each token"),
    ({"policy_loss": "gmpo", "advantage": "reinforce_plus_plus"}, "one for each token"),
    ({"algorithm": "ppo", "off_policy_delta": 0.1}, "one for each token"),
    ({"algorithm": "reinforce_plus_plus", "off_policy_delta": 0.1}, "one for each token"),
    ({"advantage": "turn_rloo", "credit": "trajectory"}, "set credit = turn"),
    ({"sft_coef": 0.1}, "set both, or neither"),
    ({"lr_schedule": "cosine"}, "falls over lr_total_steps"),
    ({"lr_schedule": "linear", "lr_total_steps": 5, "lr_warmup_steps": 5}, "is not below lr_total_steps"),
    ({"algorithm": "a2c"}, "Input should be"),
    ({"processes": 3, "replicas": 2}, "set processes to a multiple of it"),
    ({"processes": 3, "context_parallel": 2}, "processes = 3 is no multiple of it"),
    ({"offload_weights": True, "offload_optimizer": True}, "remove offload_optimizer"),
]
RECOMPUTED = {"old_logprobs": "recomputed"}
WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"algorithm": "sapo"}, "clip_low"),
    ({"policy_loss": "reinforce", "correction": "tis"} | RECOMPUTED, "clip_high"),
    *(({"algorithm": name}, "dual_clip") for name in ("gspo", "cispo", "sapo", "gmpo")),
    ({}, "sapo_tau_positive"),
    ({}, "sapo_tau_negative"),
    *(({}, name) for name in ("gae_gamma", "gae_lambda", "critic_path", "critic_lr", "value_clip")),
    ({"credit": "trajectory"}, "gamma"),
    ({}, "published_weights"),
    ({"backend": "mine.backend:open"}, "processes"),
    ({"backend": "mine.backend:open"}, "routing_replay"),
    ({}, "offload_activations"),
    ({"backend": "megatron", "gradient_checkpointing": True}, "offload_activations"),
    ({"backend": "megatron"}, "offload_weights"),
    ({"backend": "megatron"}, "compile_layers"),
    ({"backend": "megatron", "processes": 2}, "replicas"),
    ({"backend": "megatron", "processes": 2}, "context_parallel"),
    ({"backend": "megatron"}, "optimizer"),
    ({}, "megatron"),
    ({"backend": "megatron"}, "share_prefixes"),
    *(({"algorithm": name}, "keep_without_spread") for name in ("ppo", "reinforce_plus_plus")),
    *(({"loss_mean": name}, "loss_constant") for name in ("token", "sequence", "sequence_sum", "group")),
    ({}, "correction_high"),
    ({}, "correction_low"),
    ({"correction": "tis"} | RECOMPUTED, "correction_low"),
    ({"correction": "decoupled"} | RECOMPUTED, "correction_low"),
    ({"correction": "mis", "correction_mode": "truncate"} | RECOMPUTED, "correction_low"),
    *(({"correction": "tis"} | RECOMPUTED, f"correction_{name}") for name in ("level", "mode", "veto")),
    ({}, "kl_ratio"),
    ({}, "reference_path"),
    ({}, "overlong_buffer"),
    ({}, "overlong_penalty"),
    ({}, "sft_tokens"),
    ({}, "sft_seed"),
    ({}, "lr_total_steps"),
    ({}, "lr_min_ratio"),
    ({}, "min_timeout_group_size_ratio"),
    ({}, "kl_target"),
    ({"kl": "k1", "kl_coef": 0.1}, "kl_horizon"),
    ({}, "max_epoch_kl"),
    ({}, "max_epoch_clip"),
    ({}, "lora_alpha"),
    ({}, "lora_targets"),
    ({"backend": "mine.backend:open"}, "lora_rank"),
    ({"backend": "mine.backend:open"}, "keep_state_every"),
    ({"processes": 2}, "gather_precision"),
    ({"precision": "bfloat16"}, "gather_precision"),
    ({}, "missing_state"),
]
# A value of each setting of the step from rewards to gradients that is neither a default nor an algorithm's.
OTHER_VALUES: dict[str, list[Any]] = {
    "advantage": ["grpo", "dr_grpo", "rloo", "turn_rloo", "reinforce_plus_plus", "gae"],
    "gae_gamma": [0.9],
    "gae_lambda": [0.5],
    "value_clip": [0.1, "none"],
    "policy_loss": ["clipped", "gspo", "cispo", "reinforce", "sapo", "gmpo"],
    "loss_mean": ["token", "sequence", "sequence_sum", "constant", "group"],
    "loss_constant": [9],
    "clip_low": [0.05],
    "clip_high": [0.06],
    "dual_clip": [1.1, "none"],
    "sapo_tau_positive": [2.0],
    "sapo_tau_negative": [2.0],
    "old_logprobs": ["recorded", "recomputed", "interpolated"],
    "correction": ["none", "tis", "icepop", "mis", "decoupled"],
    "correction_low": [0.8],
    "correction_high": [1.2],
    "correction_level": ["sequence", "geometric"],
    "correction_mode": ["truncate", "clip"],
    "correction_veto": [0.9],
    "off_policy_delta": [0.01],
    "kl": ["none", "k1", "k2", "k3"],
    "kl_coef": [0.3],
    "kl_in": ["reward"],
    "kl_ratio": [True],
    "entropy_coef": [0.1],
    "overlong_limit": [16],
    "overlong_buffer": [3],
    "overlong_penalty": [0.5],
    "credit": ["trajectory"],
    "gamma": [0.9],
    "keep_without_spread": [True],
    "lr_schedule": ["linear", "cosine"],
    "lr_total_steps": [50],
    "lr_warmup_steps": [10],
    "lr_min_ratio": [0.3],
}
MORE: list[dict[str, Any]] = [
    {},
    {"kl": "k1", "kl_coef": 0.1},
    {"correction": "tis"} | RECOMPUTED,
    {"correction": "icepop"} | RECOMPUTED,
    {"correction": "mis"} | RECOMPUTED,
    {"correction": "decoupled"} | RECOMPUTED,
    {"correction": "decoupled", "old_logprobs": "interpolated"},
    {"overlong_limit": 12, "overlong_buffer": 6},
    {"lr_schedule": "linear", "lr_total_steps": 20},
]
# Sequences of a group with spread and of one without; how far each drifted, on average, from what was recorded.
LENGTHS, GROUPS = (9, 5, 12, 7, 10, 6, 8, 11, 13, 4, 9, 7, 6, 5), "a" * 12 + "b" * 2
DRIFTS = (-0.6, -0.6, -0.3, -0.3, -0.03, -0.03, 0.03, 0.03, 0.3, 0.3, 0.6, 0.6, 0.1, 0.1)


@pytest.mark.parametrize(("settings", "named"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TrainerConfig(**settings)


@pytest.mark.parametrize(("context", "name"), WITHOUT_EFFECT)
def test_a_setting_that_would_be_ignored_is_refused_by_name(context: dict[str, Any], name: str) -> None:
    value = {"critic_path": "somewhere", "reference_path": "somewhere", "critic_lr": 1e-3}.get(name, 0.7)
    value = {"correction_level": "sequence", "correction_mode": "clip"}.get(name, value)
    value = {"loss_constant": 9, "lr_total_steps": 9, "overlong_buffer": 3, "sft_tokens": 9, "sft_seed": 1}.get(
        name, value
    )
    value = {"published_weights": "averaged", "processes": 2, "kl_horizon": 9, "lora_rank": 4}.get(name, value)
    value = {
        "offload_weights": True,
        "offload_activations": True,
        "compile_layers": True,
        "replicas": 2,
        "context_parallel": 2,
    }.get(name, value)
    value = {"gather_precision": "bfloat16", "optimizer": "adamw_8bit"}.get(name, value)
    value = {"lora_targets": ["q_proj"], "keep_state_every": 2, "missing_state": "fresh"}.get(name, value)
    value = {"megatron": {"tensor": 2}, "share_prefixes": False}.get(name, value)
    value = {"keep_without_spread": True, "kl_ratio": True, "dual_clip": 2.0, "routing_replay": True}.get(name, value)
    TrainerConfig(**context)
    with pytest.raises(ValueError, match=f"{name} = .* has no effect here"):
        TrainerConfig(**context, **{name: value})


def test_every_setting_that_belongs_to_another_is_among_the_cases() -> None:
    belonging = {name for known in DEPENDENCIES for name in known.settings} - {"kl_in"}  # it contradicts, and says so
    assert belonging == {name for _, name in WITHOUT_EFFECT} | {"clip_high", "clip_low"}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_setting_is_refused_or_changes_what_is_computed(name: str) -> None:
    compared = 0
    for algorithm, more in itertools.product(ALGORITHMS, MORE):
        base = {"algorithm": algorithm} | ({"loss_constant": 7} if algorithm == "dr_grpo" else {}) | more
        plain = TrainerConfig(**base)
        others = [other for other in accepted(base, name) if getattr(other, name) != getattr(plain, name)]
        before = outcome(plain) if others else []
        assert not any(same(before, outcome(other)) for other in others), base
        compared += len(others)
    assert compared


def test_every_setting_from_rewards_to_gradients_is_among_the_cases() -> None:
    elsewhere = {"algorithm", "critic_path", "critic_lr", "reference_path", "kl_target", "kl_horizon"}
    assert AlgorithmConfig.model_fields.keys() - elsewhere <= OTHER_VALUES.keys()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_is_its_settings(algorithm: str) -> None:
    more = {"loss_constant": 7} if algorithm == "dr_grpo" else {}
    named = TrainerConfig(algorithm=algorithm, **more)  # type: ignore[arg-type]
    written_out = TrainerConfig(**(ALGORITHMS[algorithm] | more))
    assert same(outcome(named), outcome(written_out))


def test_each_setting_of_an_algorithm_can_be_set_besides() -> None:
    assert TrainerConfig(algorithm="gspo").clip_high == 4e-4
    assert TrainerConfig(algorithm="gspo", clip_high=1e-3).clip_high == 1e-3
    written_out = TrainerConfig(algorithm="gspo").pinned()
    assert TrainerConfig.model_validate(written_out).pinned() == written_out


def test_a_bound_is_taken_away_in_a_file_by_the_word_none() -> None:
    assert TrainerConfig.model_validate({"dual_clip": "none"}).dual_clip is None
    assert TrainerConfig.model_validate({"algorithm": "ppo", "value_clip": "none"}).value_clip is None


def accepted(base: dict[str, Any], name: str) -> Iterator[TrainerConfig]:
    for value in OTHER_VALUES[name]:
        with contextlib.suppress(ValueError):
            yield TrainerConfig(**(base | {name: value}))


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def outcome(config: TrainerConfig) -> list[np.ndarray]:
    """All that is computed from rewards to gradients, on tokens far enough apart for every bound to matter."""
    random, sequences = np.random.default_rng(3), Sequences.of(LENGTHS)
    recorded = -torch.from_numpy(random.exponential(1.0, sum(LENGTHS)))
    noise = [torch.from_numpy(random.normal(0, 0.8, len(recorded))) for _ in range(3)]
    recomputed, reference = recorded + noise[0], recorded + noise[1]
    recomputed[3] = recorded[3] - 10  # below the veto
    noise[2] += sequences.spread(torch.tensor(DRIFTS).double() - sequences.mean(noise[2]))
    logprobs = (recorded + noise[2]).requires_grad_()
    credited = credit_calls(
        HookedGroups(groups=groups(), meta_info={}, items_filtered=0, groups_invalid=0, without={}), config
    )
    credit = token_credit(
        samples(config, credited.rewards, credited.advantages),
        config,
        values={f"c{i}": random.normal(size=n).astype(np.float32) for i, n in enumerate(LENGTHS)},
        penalties=penalties(config, recorded, reference) if config.kl_in == "reward" else None,
    )
    tokens = SampledTokens(
        logprobs=logprobs,
        entropy=torch.from_numpy(random.exponential(1.0, len(recorded))),
        recorded=recorded,
        recomputed=recomputed,
        reference=reference,
        advantages=torch.from_numpy(np.concatenate([found.advantages for found in credit.values()])),
        staleness=torch.arange(len(recorded)) % 4,
        sequences=sequences,
    )
    weights = torch.tensor(LOSS_MEANS[config.loss_mean](LENGTHS, GROUPS, float(config.loss_constant or 1)))
    losses = objective(tokens, config).losses.loss * sequences.spread(weights)
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    found = [losses.detach().numpy(), gradient.numpy(), np.array([overlong_penalty(n, config) for n in range(20)])]
    found += [np.array(list(credited.reasons)), np.array([rate(config, step) for step in range(60)])]
    if config.advantage == "gae":
        every = [tokens.returns for tokens in credit.values() if tokens.returns is not None]
        returns = torch.from_numpy(np.concatenate(every))
        found.append(value_loss(returns, returns - 3, returns, config.value_clip).numpy())
    return found


def rate(config: TrainerConfig, step: int) -> float:
    return learning_rate(
        step,
        config.lr or 1e-4,
        schedule=config.lr_schedule,
        warmup_steps=config.lr_warmup_steps,
        total_steps=config.lr_total_steps,
        min_ratio=config.lr_min_ratio,
    )


def penalties(config: TrainerConfig, known: torch.Tensor, reference: torch.Tensor) -> dict[str, np.ndarray]:
    divergence = config.kl_coef * DIVERGENCES[config.kl](known, reference)
    return {f"c{i}": part.numpy() for i, part in enumerate(torch.split(divergence, LENGTHS))}


def groups() -> list[Group]:
    """A group with spread, whose first session has two turns, and one without."""
    items = [
        GroupItem(
            session_id="s0" if i == 1 else f"s{i}",
            call_id=f"c{i}",
            parent_call="c0" if i == 1 else None,
            turn=int(i == 1),
            reward=0.3 if group == "b" else i % 2 + i / 100,
            raw_reward=0.0,
            rewards={},
            compiled=None,
            correct=None,
            fault=None,
        )
        for i, group in enumerate(GROUPS)
    ]
    return [
        Group(group_id="a", group_size=11, items=tuple(items[:12])),
        Group(group_id="b", group_size=2, items=tuple(items[12:])),
    ]


def samples(config: TrainerConfig, rewards: dict[str, float], advantages: dict[str, float]) -> list[Sample]:
    return [
        Sample(
            call_id=f"c{i}",
            group_id=group,
            prompt_ids=np.zeros(1, np.int32),
            output_ids=np.zeros(length, np.int32),
            old_logprobs=np.zeros(length, np.float32),
            versions=np.zeros(length, np.int32),
            temperature=1.0,
            advantage=advantages.get(f"c{i}", 0.0),
            reward=rewards.get(f"c{i}", 0.0),
            follows="c0" if i == 1 else None,
        )
        for i, (group, length) in enumerate(zip(GROUPS, LENGTHS, strict=True))
    ]
