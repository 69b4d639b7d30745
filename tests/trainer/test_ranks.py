"""One process or two, float32 or bfloat16, with or without recomputation: the same weights and files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support_gradients import whole_gradient
from support_samples import branching_samples, make_samples

from weir.trainer.backend import open_backend
from weir.trainer.config import TrainerConfig
from weir.trainer.errors import NotFinite, TrainerError
from weir.trainer.learner import Learner
from weir.trainer.ranks import Ranks
from weir.trainer.schedule import learning_rate


@given(st.lists(st.integers(), max_size=9), st.integers(1, 4))
def test_every_part_counts_once_and_all_ranks_make_as_many_passes(parts: list[int], count: int) -> None:
    shares = [Ranks(rank=rank, count=count).share(parts) for rank in range(count)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(part for share in shares for part, counts in share if counts) == sorted(parts)


def test_a_round_on_two_ranks_goes_on_as_a_round_in_one_process(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The first round on two ranks, the second in one process; against both in one process."""
    first, second = branching_samples(tiny_model_dir), make_samples(tiny_model_dir, [(4, 6), (7, 3)], seed=1)
    settings = {"algorithm": "ppo", "device": "cpu", "optimizer_steps": 2, "token_budget": 60}
    settings |= {"lr_schedule": "linear", "lr_total_steps": 8, "lr_warmup_steps": 1}
    weights, figures = [], []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        config = TrainerConfig(processes=processes, **settings)  # type: ignore[arg-type]
        backend = open_backend(tiny_model_dir, config, reference=tiny_model_dir)
        figures.append(backend.train(first, fresh_version=0, seed=1))
        backend.save(folder)
        learner = Learner(folder, TrainerConfig(**settings))  # type: ignore[arg-type]
        assert learner.stepper.num_steps == 2
        learner.train(second, fresh_version=0, seed=2)
        (folder / "second").mkdir()
        learner.save(folder / "second")
        weights.append(load_file(folder / "second" / "model.safetensors"))
    for alone, together in zip(*figures, strict=True):
        assert together.loss == pytest.approx(alone.loss, rel=1e-4, abs=1e-6)
        assert together.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)
        assert (together.num_tokens, together.tree_ratio) == (alone.num_tokens, pytest.approx(alone.tree_ratio))
    assert weights[0].keys() == weights[1].keys()
    for name, alone_weights in weights[0].items():
        assert torch.allclose(weights[1][name], alone_weights, atol=2e-4)


def test_ranks_that_end_are_told_of_and_what_is_not_finite_is_not_written(tiny_model_dir: Path, tmp_path: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 4), (5, 6)])
    config = TrainerConfig(device="cpu", processes=2)
    alone = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    assert open_backend(tiny_model_dir, config, reference=tiny_model_dir).num_parameters == alone.num_parameters
    with pytest.raises(TrainerError, match="last words"):
        open_backend(tmp_path, config, reference=tmp_path).train(samples, fresh_version=0, seed=0)
    broken = shutil.copytree(tiny_model_dir, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(NotFinite, match="the step was not taken"):
        open_backend(broken, config, reference=broken).train(samples, fresh_version=0, seed=0)


def test_the_gradient_in_bfloat16_is_near_that_of_float32(tiny_model_dir: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    gradients = []
    for precision in ("float32", "bfloat16"):
        config = TrainerConfig(algorithm="cispo", device="cpu", precision=precision)  # type: ignore[arg-type]
        gradients.append(whole_gradient(tiny_model_dir, tiny_model_dir, config, samples)["policy"])
    exact, rounded = gradients
    assert float((rounded - exact).norm()) <= 5e-2 * float(exact.norm())


def test_bfloat16_is_published_and_float32_is_gone_on_with(tiny_model_dir: Path, tmp_path: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", precision="bfloat16"))
    learner.train(samples, fresh_version=0, seed=0)
    learner.save(tmp_path)
    published = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in published.values()} == {torch.bfloat16}
    loaded = Learner(tmp_path, learner.config)
    for ours, theirs in zip(learner.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert theirs.dtype == torch.float32


@pytest.mark.parametrize("setting", ["gradient_checkpointing", "offload_optimizer"])
def test_what_saves_memory_changes_no_bit(tiny_model_dir: Path, setting: str) -> None:
    samples = branching_samples(tiny_model_dir)
    learners = [Learner(tiny_model_dir, TrainerConfig(device="cpu", **{setting: on})) for on in (False, True)]
    for learner in learners:
        learner.train(samples, fresh_version=0, seed=0)
        learner.train(samples, fresh_version=0, seed=1)
    for plain, saving in zip(learners[0].model.parameters(), learners[1].model.parameters(), strict=True):
        assert torch.equal(plain, saving)


@given(st.integers(0, 300), st.sampled_from(["linear", "cosine"]))
def test_the_learning_rate_warms_up_and_falls_to_its_floor(step: int, schedule: str) -> None:
    def rate(at: int) -> float:
        given = {"schedule": schedule, "warmup_steps": 10, "total_steps": 201, "min_ratio": 0.1}
        return learning_rate(at, 1.0, **given)  # type: ignore[arg-type]

    assert 0 < rate(step) <= 1.0
    if step < 10:
        assert rate(step) == pytest.approx((step + 1) / 10)
    else:
        assert rate(step + 1) <= rate(step)
    if step >= 201:
        assert rate(step) == pytest.approx(0.1)
