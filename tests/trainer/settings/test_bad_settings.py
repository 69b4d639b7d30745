"""Invalid settings: refused when they are read, or before a round is claimed with them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support_rounds import Judge, add_group, trainer_config
from support_samples import make_samples
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.config import StoreConfig
from weir.trainer.errors import TrainerUsageError
from weir.trainer.learner.learner import Learner
from weir.trainer.settings.config import SftConfig, TrainerConfig
from weir.trainer.trainer import Trainer

ABSURD: list[dict[str, Any]] = [
    {"lr": -1e-4},
    {"lr": 0},
    {"lr": 1e38},
    {"lr": math.inf},
    {"lr": math.nan},
    {"publish": {"way": "disk", "by_ranks": True}},
    {"clip_low": 0},
    {"clip_low": 1.5},
    {"clip_high": 0},
    {"clip_high": -0.2},
    {"clip_high": math.inf},
    {"dual_clip": 1.0},
    {"betas": (1.5, 0.9)},
    {"betas": (0.9, -1)},
    {"grad_clip": 0},
    {"weight_decay": -1},
    {"gamma": 1.01},
    {"ema": 1.0},
    {"groups_per_round": 0},
    {"min_groups": 0},
    {"min_timeout_group_size_ratio": 0, "group_timeout_s": 1},
    {"max_staleness": -1},
    {"max_sample_tokens": 0},
    {"optimizer_steps": 0},
    {"token_budget": 0},
    {"seed": -1},
    {"seed": 2**70},
    {"judge_seed": -1},
    {"judge_attempts": 0},
    {"judge_timeout_s": math.inf},
    {"processes": 10**9},
    {"torch_threads": 10**9},
    {"keep_versions": 1},
    {"publish_timeout_s": 0},
    {"kl": "k3", "kl_coef": math.inf},
    {"rewards": {"kernel_eval": {"weight": math.nan}}},
]


@pytest.mark.parametrize("settings", ABSURD, ids=lambda settings: next(iter(settings)))
def test_absurd_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        TrainerConfig(**settings)


def test_absurd_settings_of_a_cold_start_are_refused() -> None:
    for settings in ({"lr": math.inf}, {"betas": (0.9, 1.0)}, {"seed": -1}, {"epochs": 0}, {"torch_threads": 10**9}):
        with pytest.raises(ValidationError, match=next(iter(settings))):
            SftConfig(**settings)  # type: ignore[arg-type]


def test_a_billion_optimiser_steps_are_as_many_as_there_are_samples(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 4)] * 3)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", optimizer_steps=10**9))
    assert [step.num_samples for step in learner.train(samples, fresh_version=0, seed=0)] == [1, 1, 1]


def test_models_and_devices_that_are_not_there_are_named_before_anything_is_claimed(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    away = str(tmp_path / "away")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kl": "k3", "kl_coef": 0.1, "reference_path": away}, r"trainer\.reference_path = .* has no config\.json"),
        ({"algorithm": "ppo", "critic_path": away}, r"trainer\.critic_path = .* has no config\.json"),
    ]
    if not torch.cuda.is_available():
        cases.append(({"device": "cuda"}, "torch finds no GPU"))
    for settings, why in cases:
        trainer = Trainer(trainer_config(judge, **settings), store, model_path=tiny_model_dir)
        with pytest.raises(TrainerUsageError, match=why):
            trainer.run_round()
        assert trainer.catalog.rounds() == []
        trainer.close()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--loop", "--dry-run"], "give one of them"),
        (["--replay", "1", "--loop"], "give one of them"),
        (["--max-rounds", "3"], "--max-rounds requires --loop"),
        (["--loop", "--max-rounds", "0"], "greater than or equal to 1"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags: list[str], why: str) -> None:
    done = CliRunner().invoke(app, ["round", *flags])
    assert done.exit_code != 0
    assert why in str(done.exception) + done.output


def test_a_setting_at_its_bound_is_taken() -> None:
    config = TrainerConfig(seed=2**62 - 1, groups_per_round=10**9, judge_seed=0)
    assert np.random.default_rng(config.seed + 10**9) is not None
    torch.manual_seed(config.seed + 10**9)
