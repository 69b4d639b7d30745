"""Several epochs over a round, their limits, and the KL coefficient steered towards a target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support_samples import make_samples

from weir.trainer.learner.adaptive_kl import steered
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.step_stats import StepStats, TokenStats
from weir.trainer.rounds.metrics import step_metrics
from weir.trainer.settings.config import TrainerConfig

LENGTHS = [(3, 9), (8, 5), (4, 7), (6, 6)]


def learner(model: Path, **more: Any) -> Learner:
    return Learner(model, TrainerConfig(device="cpu", **more))


def weights(found: Learner) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in found.model.parameters()]


def step(**figures: Any) -> StepStats:
    empty = TokenStats(num_tokens=1, computed_tokens=1, ratio_square_sum=1.0)
    return replace(empty.finished(grad_norm=0.0, num_samples=1), **figures)


def test_an_epoch_is_a_pass_over_the_same_samples_with_the_old_logprobs_kept(tiny_model_dir: Path) -> None:
    """Two epochs equal two rounds of one step over the same recorded logprobs, with the optimiser going on."""
    samples = make_samples(tiny_model_dir, LENGTHS)
    at_once, one_by_one = learner(tiny_model_dir, epochs=2), learner(tiny_model_dir)
    steps = at_once.train(samples, fresh_version=0, seed=0)
    for _ in range(2):
        one_by_one.train(samples, fresh_version=0, seed=0)
    assert [found.epoch for found in steps] == [1, 2]
    assert all(torch.equal(*pair) for pair in zip(weights(at_once), weights(one_by_one), strict=True))
    assert step_metrics(steps)["epochs"] == 2


def test_recomputed_logprobs_are_those_before_the_first_epoch(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, LENGTHS)
    found = learner(tiny_model_dir, epochs=3, old_logprobs="recomputed", correction="tis", lr=1e-2)
    scored = []
    score = found.score
    found.score = lambda given: (scored.append(len(given)), score(given))[1]  # type: ignore[method-assign, func-returns-value]
    steps = found.train(samples, fresh_version=0, seed=0)
    assert scored == [4]
    assert steps[2].clip_low + steps[2].clip_high > steps[0].clip_low + steps[0].clip_high == 0.0


def test_epochs_come_in_different_orders_that_the_seed_decides(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, LENGTHS)
    parts = [learner(tiny_model_dir, epochs=2, optimizer_steps=4)._parts(len(samples), seed) for seed in (5, 5, 6)]
    first, again, other = ([int(part[0]) for _, part in found] for found in parts)
    assert sorted(first[:4]) == sorted(first[4:]) == [0, 1, 2, 3]
    assert first[:4] != first[4:]
    assert first == again != other


@pytest.mark.parametrize("limit", [{"max_epoch_kl": 1e-4}, {"max_epoch_clip": 0.05}])
def test_a_limit_refuses_the_step_that_exceeds_it_and_says_so(tiny_model_dir: Path, limit: dict[str, Any]) -> None:
    samples = make_samples(tiny_model_dir, LENGTHS, noise=0.0)
    stopped, once = learner(tiny_model_dir, epochs=9, lr=1e-2, **limit), learner(tiny_model_dir, lr=1e-2)
    steps = stopped.train(samples, fresh_version=0, seed=0)
    once.train(samples, fresh_version=0, seed=0)
    assert [found.stopped_by for found in steps] == [None, *limit]
    assert stopped.num_steps == 1
    assert all(torch.equal(*pair) for pair in zip(weights(stopped), weights(once), strict=True))
    metrics = step_metrics(steps)
    assert (metrics["optimizer_steps"], metrics["epochs"], metrics["early_stop"]) == (1, 1, {next(iter(limit)): 1})


def test_the_coefficient_follows_zieglers_rule() -> None:
    config = TrainerConfig(kl="k3", kl_coef=0.1, kl_target=0.02, kl_horizon=100)
    far = [
        step(num_samples=10, num_tokens=30, kl_reference=0.06),
        step(num_samples=10, num_tokens=10, kl_reference=0.1),
    ]
    assert steered(0.1, far, config) == pytest.approx(0.1 * (1 + 0.2 * 20 / 100))
    near = [
        step(num_samples=10, num_tokens=30, kl_reference=0.02),
        step(num_samples=10, num_tokens=10, kl_reference=0.012),
    ]
    assert steered(0.1, near, config) == pytest.approx(0.1 * (1 + (0.018 / 0.02 - 1) * 20 / 100))
    again = step(num_samples=20, num_tokens=40, kl_reference=9.0, epoch=2)
    assert steered(0.1, [*near, again], config) == steered(0.1, near, config)
    assert steered(0.1, far, config.model_copy(update={"kl_target": None})) == 0.1


def test_the_steered_coefficient_enters_the_loss_and_outlives_the_process(tiny_model_dir: Path, tmp_path: Path) -> None:
    samples = make_samples(tiny_model_dir, LENGTHS)
    settings: dict[str, Any] = {"kl": "k2", "kl_coef": 0.5, "kl_target": 1e-6, "kl_horizon": 4, "lr": 1e-2}
    steered_one = Learner(tiny_model_dir, TrainerConfig(device="cpu", **settings), reference=tiny_model_dir)
    (first,) = steered_one.train(samples, fresh_version=0, seed=0)
    assert (first.kl_coef, steered_one.kl_coef) == (0.5, pytest.approx(0.4))  # no divergence yet: it falls
    steered_one.save(tmp_path)
    (second,) = steered_one.train(samples, fresh_version=1, seed=1)
    loaded = Learner(tmp_path, TrainerConfig(device="cpu", **settings), reference=tiny_model_dir)
    (again,) = loaded.train(samples, fresh_version=1, seed=1)
    assert again == second
    assert (again.kl_coef, loaded.kl_coef) == (pytest.approx(0.4), pytest.approx(0.48))
    fixed = TrainerConfig(device="cpu", kl="k2", kl_coef=pytest.approx(0.4).expected, lr=1e-2)
    (same,) = Learner(tmp_path, fixed, reference=tiny_model_dir).train(samples, fresh_version=1, seed=1)
    assert same.loss == pytest.approx(second.loss)
