"""Optimiser steps: clipping, and exact resume from a file under all settings."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from support_model import make_tiny_model
from support_samples import branching_samples, make_samples
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)

from weir.trainer.learner.learner import Learner
from weir.trainer.settings.config import TrainerConfig


def norm(learner: Learner) -> float:
    return float(torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None]).norm())


def test_a_gradient_is_clipped_as_a_whole_and_its_norm_before_is_told(tiny_model_dir: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    for bound in (0.25, 1e6):
        learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", grad_clip=bound))
        learner.score(samples)
        learner.accumulate(samples, fresh_version=0)
        before = norm(learner)
        assert before > 0.25
        assert learner.stepper.clip() == pytest.approx(before, rel=1e-5)
        assert norm(learner) == pytest.approx(min(before, bound), rel=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"lr_schedule": "linear", "lr_warmup_steps": 3, "lr_total_steps": 6},
        {"lr_schedule": "cosine", "lr_total_steps": 6, "lr_min_ratio": 0.1},
        {"offload_optimizer": True, "gradient_checkpointing": True, "offload_activations": True},
        {"precision": "bfloat16", "ema": 0.9},
        {"optimizer": "adamw_8bit", "offload_optimizer": True, "ema": 0.9},
    ],
    ids=["linear", "cosine", "memory", "bfloat16", "8 bits"],
)
def test_a_model_with_dropout_goes_on_from_its_file_to_the_same_bits(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = make_tiny_model(tmp_path / "model", dropout=0.1)
    rounds = [branching_samples(model), *(make_samples(model, [(4, 6), (5, 9)], seed=seed) for seed in (1, 2))]
    config = TrainerConfig(device="cpu", optimizer_steps=2, **settings)
    in_memory = Learner(model, config)
    folder = model
    for number, samples in enumerate(rounds):
        loaded = Learner(folder, config)
        for learner in (in_memory, loaded):
            learner.train(samples, fresh_version=number, seed=number)
        for ours, theirs in zip(in_memory.model.parameters(), loaded.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)
        folder = tmp_path / str(number)
        folder.mkdir()
        loaded.save(folder)
    assert in_memory.num_steps == 6


def test_a_checkpoint_of_one_process_is_what_torch_gathers_from_ranks(tiny_model_dir: Path) -> None:
    stepper = Learner(tiny_model_dir, TrainerConfig(device="cpu")).stepper
    for parameter in stepper.module.parameters():
        parameter.grad = torch.randn_like(parameter)
    stepper.step()
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    gathered = get_optimizer_state_dict(stepper.module, stepper.optimizer, options=whole)
    assert saved(stepper.state()["optimizer"]) == saved(gathered)
    assert saved(stepper.weights()) == saved(get_model_state_dict(stepper.module, options=whole))


def saved(state: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()
