"""The learner: gradients against the formula, exact resume, refused steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support_model import make_tiny_model
from support_samples import branching_samples, make_samples

from weir.trainer.errors import NotFinite
from weir.trainer.learner.learner import Learner
from weir.trainer.settings.config import TrainerConfig


def test_the_tree_ratio_is_the_tokens_of_samples_over_those_computed(tiny_model_dir: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    (step,) = learner.train(samples, fresh_version=0, seed=0)
    assert step.tree_ratio == pytest.approx(
        (28 + 37 + 29 + 26) / (20 + 16 + 8 + 5)
    )  # a group's: the last tokens are no input


def test_the_gradient_is_that_of_the_formula(tiny_model_dir: Path) -> None:
    """Against a plain loop: one row at a time, full logits, ratio 1."""
    samples = make_samples(tiny_model_dir, [(3, 4), (5, 2)], noise=0.0)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    learner.score(samples)
    learner.accumulate(samples, fresh_version=0)
    found = [None if p.grad is None else p.grad.clone() for p in learner.model.parameters()]
    learner.stepper.clear()
    learner.model.network.set_attn_implementation("eager")
    for sample in samples:
        logits = (
            learner.model.network(torch.from_numpy(sample.ids[None].astype(np.int64))).logits[0] / sample.temperature
        )
        for i, token in enumerate(sample.output_ids):
            logprob = torch.log_softmax(logits[len(sample.prompt_ids) + i - 1], -1)[int(token)]
            (-sample.advantage * logprob / 6).backward(retain_graph=True)  # 6 target tokens in all
    for parameter, grad in zip(learner.model.parameters(), found, strict=True):
        assert grad is not None and parameter.grad is not None
        assert torch.allclose(grad, parameter.grad, atol=1e-6, rtol=1e-4)


def test_quantiles_of_the_differences_to_the_engine_are_those_of_all_tokens(tiny_model_dir: Path) -> None:
    """Over micro-batches of one sample each, against numpy's over the same differences."""
    exact = make_samples(tiny_model_dir, [(3, 40), (8, 50), (4, 60)], noise=0.0)
    errors = [10 ** np.linspace(-3, 0, len(one.output_ids)).astype(np.float32) for one in exact]
    samples = [replace(one, old_logprobs=one.old_logprobs - by) for one, by in zip(exact, errors, strict=True)]
    (step,) = Learner(tiny_model_dir, TrainerConfig(device="cpu", token_budget=64)).train(
        samples, fresh_version=0, seed=0
    )
    found = (step.fresh_logprob_diff_p50, step.fresh_logprob_diff_p90, step.fresh_logprob_diff_p99)
    assert found == pytest.approx(np.quantile(np.concatenate(errors), [0.5, 0.9, 0.99]), rel=0.2)


def test_before_the_first_step_the_models_own_logprobs_are_found_again(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 9), (8, 5), (4, 7)], noise=0.0)
    (step,) = Learner(tiny_model_dir, TrainerConfig(device="cpu")).train(samples, fresh_version=0, seed=0)
    assert step.fresh_tokens == 21
    assert step.fresh_logprob_diff_p50 <= step.fresh_logprob_diff_p99 <= step.fresh_logprob_diff_max < 1e-5
    assert step.ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert step.kl_k3 == pytest.approx(0.0, abs=1e-6)
    assert (step.clip_low, step.clip_high) == (0.0, 0.0)
    assert step.entropy > 0


@pytest.mark.parametrize("algorithm", ["dapo", "ppo"])
def test_going_on_in_memory_and_loading_from_disk_give_the_same_bits(
    tiny_model_dir: Path, tmp_path: Path, algorithm: str
) -> None:
    first, second = make_samples(tiny_model_dir, [(3, 9), (8, 5)]), make_samples(tiny_model_dir, [(4, 6)], seed=1)
    config = TrainerConfig(algorithm=algorithm, device="cpu", optimizer_steps=2)  # type: ignore[arg-type]
    in_memory = Learner(tiny_model_dir, config)
    in_memory.train(first, fresh_version=0, seed=1)
    in_memory.save(tmp_path)
    in_memory.train(second, fresh_version=0, seed=2)
    loaded = Learner(tmp_path, config)
    loaded.train(second, fresh_version=0, seed=2)
    for ours, theirs in zip(in_memory.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 4)])
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    before = [p.detach().clone() for p in learner.model.parameters()]
    with torch.no_grad():
        next(iter(learner.model.parameters()))[int(samples[0].prompt_ids[0])] = float("nan")
    with pytest.raises(NotFinite, match="the step was not taken"):
        learner.train(samples, fresh_version=0, seed=0)
    for parameter, old in list(zip(learner.model.parameters(), before, strict=True))[1:]:
        assert torch.equal(parameter, old)


def test_weights_that_a_step_makes_infinite_are_named_before_they_can_be_written(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", tied=False)
    learner = Learner(model, TrainerConfig(device="cpu", lr=1000, weight_decay=1000))
    (sample,) = make_samples(model, [(3, 4)])
    unused = next(token for token in range(512) if token not in sample.ids)  # what it stands for reaches no loss
    with torch.no_grad():
        learner.model.network.get_input_embeddings().weight[unused] = 3e38
    with pytest.raises(NotFinite, match=r"after step 1 not every weight is a finite number.*lower trainer\.lr = 1000"):
        learner.train([sample], fresh_version=0, seed=0)


def test_the_critic_learns_what_rewards_are_worth(tiny_model_dir: Path) -> None:
    """One reward for all: the values of the states before it come near, and the value loss falls."""
    samples = [replace(sample, reward=0.7) for sample in make_samples(tiny_model_dir, [(3, 5), (6, 4), (4, 7)])]
    config = TrainerConfig(algorithm="ppo", device="cpu", critic_lr=3e-3, value_clip=None, gae_lambda=1.0)
    learner = Learner(tiny_model_dir, config)
    assert learner.critic is not None
    assert all((values == 0).all() for values in learner.critic.values(samples).values())
    losses = [learner.train(samples, fresh_version=0, seed=seed)[0].value_loss for seed in range(40)]
    assert losses[0] == pytest.approx(0.7**2 / 2)
    values = np.concatenate(list(learner.critic.values(samples).values()))
    assert np.abs(values - 0.7).max() < 0.2


def test_several_optimiser_steps_share_the_samples_out(tiny_model_dir: Path) -> None:
    samples = make_samples(tiny_model_dir, [(3, 4)] * 5)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", optimizer_steps=2))
    steps = learner.train(samples, fresh_version=0, seed=3)
    assert [step.num_samples for step in steps] == [3, 2]
    assert learner.train([], fresh_version=0, seed=3) == []
