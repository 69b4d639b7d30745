"""The weight average: its formula, the published weights, and its resume to the bit."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from support_rounds import Judge, add_group, run_in_process, trainer_config
from support_samples import branching_samples, make_samples

from weir.store.config import StoreConfig
from weir.trainer.learner.learner import Learner
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import version_path


def learner_of(folder: Path, **settings: Any) -> Learner:
    return Learner(folder, TrainerConfig(device="cpu", **settings))


def flat(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.model.parameters()])


def average(learner: Learner) -> torch.Tensor:
    assert learner.stepper.average is not None
    with learner.stepper.average.in_place():
        return flat(learner)


def test_after_each_step_the_average_moves_by_its_formula(tiny_model_dir: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    plain, averaging = learner_of(tiny_model_dir), learner_of(tiny_model_dir, ema=0.75)
    expected = flat(plain)
    for seed in range(3):
        plain.train(samples, fresh_version=0, seed=seed)
        averaging.train(samples, fresh_version=0, seed=seed)
        expected = 0.75 * expected + 0.25 * flat(plain)
        assert torch.equal(flat(averaging), flat(plain))
        assert torch.allclose(average(averaging), expected, atol=1e-7)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("published", ["stepped", "averaged"])
def test_the_weights_of_the_settings_are_published_and_both_are_gone_on_with(
    tiny_model_dir: Path, tmp_path: Path, published: str, precision: str
) -> None:
    first, second = branching_samples(tiny_model_dir), make_samples(tiny_model_dir, [(4, 6)], seed=1)
    settings = {"ema": 0.9, "published_weights": published, "precision": precision, "optimizer_steps": 2}
    in_memory = learner_of(tiny_model_dir, **settings)
    in_memory.train(first, fresh_version=0, seed=1)
    in_memory.save(tmp_path)
    expected = average(in_memory) if published == "averaged" else flat(in_memory)
    files = load_file(tmp_path / "model.safetensors")
    names = [name.removeprefix("network.") for name, _ in in_memory.model.named_parameters()]
    found = torch.cat([files[name].flatten() for name in names])
    assert torch.equal(found, expected.to(getattr(torch, precision)))
    in_memory.train(second, fresh_version=0, seed=2)
    loaded = learner_of(tmp_path, **settings)
    loaded.train(second, fresh_version=0, seed=2)
    assert torch.equal(flat(loaded), flat(in_memory))
    assert torch.equal(average(loaded), average(in_memory))


def test_an_average_that_begins_later_begins_at_the_stepped_weights(tiny_model_dir: Path, tmp_path: Path) -> None:
    without = learner_of(tiny_model_dir)
    without.train(branching_samples(tiny_model_dir), fresh_version=0, seed=1)
    without.save(tmp_path)
    assert torch.equal(average(learner_of(tmp_path, ema=0.9)), flat(without))


def test_weights_that_engines_do_not_have_are_not_held_against_their_logprobs(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 9), (8, 5)], noise=0.0)
    learner = learner_of(tiny_model_dir, ema=0.9, published_weights="averaged")
    fresh = [learner.train(samples, fresh_version=0, seed=seed)[0].fresh_tokens for seed in range(2)]
    assert fresh == [14, 0]  # before the first step the average is the weights


def test_an_average_to_publish_needs_a_decay() -> None:
    with pytest.raises(ValidationError, match="published_weights = averaged has no effect here: it belongs to an ema"):
        TrainerConfig(published_weights="averaged")


def test_rounds_that_are_killed_have_the_average_of_undisturbed_ones(
    tiny_model_dir: Path, tmp_path: Path, judge: Judge
) -> None:
    config = trainer_config(judge, groups_per_round=1, ema=0.9, published_weights="averaged")
    whole, killed = (StoreConfig(root=tmp_path / name) for name in ("whole", "killed"))
    for store in (whole, killed):
        for group_id in ("g1", "g2"):
            add_group(store, tiny_model_dir, group_id, [0.0, 0.3, 1.0])
    assert run_in_process(config, whole, tiny_model_dir, rounds=2) == 0
    for step in ("trained", "files_written", "checkpointed", "trained"):
        assert run_in_process(config, killed, tiny_model_dir, kill_at=step) == -signal.SIGKILL
    assert run_in_process(config, killed, tiny_model_dir, rounds=None) == 0
    for name in ("model.safetensors", "trainer_state.pt"):
        files = [version_path(store.folder, 2) / name for store in (whole, killed)]
        assert files[0].read_bytes() == files[1].read_bytes()
