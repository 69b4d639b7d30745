"""Off-policy samples: probabilities, weights and gradients against a plain implementation, token by token in floats."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from weir.trainer.credit.behaviour import behaviour_of
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.off_policy import OffPolicyScores, score_off_policy
from weir.trainer.settings.config import TrainerConfig

WAYS: dict[str, dict[str, Any]] = {
    "top_p": {"top_p": 0.8},
    "top_k": {"top_k": 7, "temperature": 1.4},
    "min_p": {"min_p": 0.3, "temperature": 0.7},
    "all of them": {"top_p": 0.9, "top_k": 40, "min_p": 0.05, "temperature": 0.8},
    "penalties": {"frequency_penalty": 0.7, "presence_penalty": -0.4, "repetition_penalty": 1.3},
    "penalties and top_p": {"repetition_penalty": 1.5, "frequency_penalty": 0.2, "top_p": 0.7, "temperature": 0.6},
    "greedy": {"temperature": 0.0},
    "greedy by top_k": {"temperature": 0.7, "top_k": 1},
}
CPU = torch.device("cpu")


class Plain:
    """Sampling as its documents describe it, in Python floats, over transformers' own forward pass."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def logits(self, ids: list[int]) -> list[float]:
        with torch.no_grad():
            found: list[float] = self.model(torch.tensor([ids])).logits[0, -1].tolist()
        return found

    @staticmethod
    def softmax(logits: list[float], temperature: float) -> list[float]:
        best = max(logits)
        weights = [math.exp((logit - best) / temperature) for logit in logits]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def policy(self, logits: list[float], sampling: dict[str, Any]) -> list[float]:
        temperature = sampling.get("temperature", 1.0)
        return self.softmax(logits, 1.0 if self.is_greedy(sampling) else temperature)

    @staticmethod
    def is_greedy(sampling: dict[str, Any]) -> bool:
        return sampling.get("temperature", 1.0) == 0.0 or sampling.get("top_k") == 1

    def reported(self, logits: list[float], drawn: list[int], sampling: dict[str, Any]) -> list[float]:
        """The distribution whose logprobs engines report: after penalties and temperature."""
        changed = list(logits)
        for token in set(drawn):
            changed[token] -= sampling.get("frequency_penalty", 0.0) * drawn.count(token)
            changed[token] -= sampling.get("presence_penalty", 0.0)
            scale = sampling.get("repetition_penalty", 1.0)
            changed[token] *= scale if changed[token] < 0 else 1 / scale
        return self.policy(changed, sampling)

    def behaviour(self, logits: list[float], drawn: list[int], sampling: dict[str, Any]) -> list[float]:
        """The distribution that tokens are drawn from."""
        probs = self.reported(logits, drawn, sampling)
        order = sorted(range(len(probs)), key=lambda token: -probs[token])
        if self.is_greedy(sampling):
            return [1.0 if token == order[0] else 0.0 for token in range(len(probs))]
        kept, mass = [], 0.0
        for rank, token in enumerate(order):
            in_k = rank < sampling.get("top_k", len(probs))
            in_p = mass <= sampling.get("top_p", 1.0)
            in_min = probs[token] >= sampling.get("min_p", 0.0) * probs[order[0]]
            if in_k and in_p and in_min:
                kept.append(token)
            mass += probs[token]
        total = math.fsum(probs[token] for token in kept)
        return [probs[token] / total if token in kept else 0.0 for token in range(len(probs))]


@pytest.fixture(scope="module")
def plain(tiny_model_dir: Path) -> Plain:
    return Plain(tiny_model_dir)


def drawn_sample(
    plain: Plain, sampling: dict[str, Any], seed: int, length: int = 9
) -> tuple[Sample, list[list[float]]]:
    """A sample drawn as the engine would, with what it would report; and log pi, log mu of its tokens."""
    random = np.random.default_rng(seed)
    prompt = [int(token) for token in random.integers(10, 200, 6)]
    output: list[int] = []
    recorded, policy, behaviour = [], [], []
    for _ in range(length):
        logits = plain.logits(prompt + output)
        mu = plain.behaviour(logits, output, sampling)
        token = int(random.choice(len(mu), p=np.asarray(mu) / sum(mu)))
        recorded.append(math.log(plain.reported(logits, output, sampling)[token]))
        policy.append(math.log(plain.policy(logits, sampling)[token]))
        behaviour.append(math.log(mu[token]))
        output.append(token)
    how = behaviour_of(sampling)
    sample = Sample(
        call_id=f"c{seed}",
        group_id="g",
        prompt_ids=np.array(prompt, np.int32),
        output_ids=np.array(output, np.int32),
        old_logprobs=np.array(recorded, np.float32),
        versions=np.zeros(length, np.int32),
        temperature=how.temperature,
        advantage=float(random.standard_normal()),
        behaviour=how,
    )
    return sample, [policy, behaviour]


def scores_of(folder: Path, samples: list[Sample], **settings: Any) -> OffPolicyScores:
    config = TrainerConfig(device="cpu", **settings)
    found = score_off_policy(Learner(folder, config).model, samples, config, CPU, Ranks())
    assert found is not None
    return found


@pytest.mark.parametrize("name", WAYS)
def test_probabilities_under_policy_and_behaviour_are_those_of_the_plain_loop(
    plain: Plain, tiny_model_dir: Path, name: str
) -> None:
    pairs = [drawn_sample(plain, WAYS[name], seed) for seed in range(2)]
    found = scores_of(tiny_model_dir, [sample for sample, _ in pairs], token_budget=20)
    for sample, (policy, behaviour) in pairs:
        assert sample.behaviour.is_off_policy
        assert found.policy[sample.call_id] == pytest.approx(policy, abs=1e-4)
        assert found.behaviour[sample.call_id] == pytest.approx(behaviour, abs=1e-4)
        assert found.outside[sample.call_id] == 0


def test_the_weights_turn_means_under_the_behaviour_into_means_under_the_policy(
    plain: Plain, tiny_model_dir: Path
) -> None:
    """Over all tokens that could be drawn: Σ mu w f = Σ pi f, on what truncation keeps."""
    sampling = {"top_k": 5, "repetition_penalty": 1.4}
    prompt, drawn = [20, 21, 22], [30, 30]
    logits = plain.logits(prompt + drawn)
    mu, pi = plain.behaviour(logits, drawn, sampling), plain.policy(logits, sampling)
    reported = plain.reported(logits, drawn, sampling)
    kept = [token for token, share in enumerate(mu) if share > 0]
    assert len(kept) == 5
    template, _ = drawn_sample(plain, sampling, 0)
    samples = [
        replace(
            template,
            call_id=str(token),
            prompt_ids=np.array(prompt, np.int32),
            output_ids=np.array([*drawn, token], np.int32),
            old_logprobs=np.array([-1.0, -1.0, math.log(reported[token])], np.float32),
            versions=np.zeros(3, np.int32),
        )
        for token in kept
    ]
    scores = scores_of(tiny_model_dir, samples)
    shares = {token: math.exp(scores.behaviour[str(token)][2]) for token in kept}
    weights = {token: math.exp(scores.policy[str(token)][2]) / shares[token] for token in kept}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-5)
    value = {token: float(token % 7) for token in kept}
    mean = sum(shares[token] * weights[token] * value[token] for token in kept)
    assert mean == pytest.approx(sum(pi[token] * value[token] for token in kept), rel=1e-4)


def test_the_gradient_is_that_of_the_plain_loop_with_bounded_weights(plain: Plain, tiny_model_dir: Path) -> None:
    """On- and off-policy samples in one step; the weights of two ways reach a bound."""
    drawn = [drawn_sample(plain, sampling, seed, 5) for seed, sampling in enumerate([*WAYS.values(), {}])]
    samples = [sample for sample, _ in drawn]
    low, high = 0.05, 1.05
    config = TrainerConfig(device="cpu", off_policy={"low": low, "high": high})
    learner = Learner(tiny_model_dir, config)
    learner.score(samples)
    stats = learner.accumulate(samples, fresh_version=0)
    found = [None if p.grad is None else p.grad.clone() for p in learner.model.parameters()]
    learner.stepper.clear()
    learner.model.network.set_attn_implementation("eager")
    num_tokens, weights = sum(len(sample.output_ids) for sample in samples), []
    for sample, (policy, behaviour) in drawn:
        ids = torch.from_numpy(sample.ids[None].astype(np.int64))
        logits = learner.model.network(ids).logits[0] / sample.temperature
        for i, token in enumerate(sample.output_ids):
            logprob = torch.log_softmax(logits[len(sample.prompt_ids) + i - 1], -1)[int(token)]
            weight = 1.0
            if sample.behaviour.is_off_policy:
                weight = min(max(math.exp(policy[i] - behaviour[i]), low), high)
                weights.append(weight)
            (-weight * sample.advantage * logprob / num_tokens).backward(retain_graph=True)
    for parameter, grad in zip(learner.model.parameters(), found, strict=True):
        assert grad is not None and parameter.grad is not None
        assert torch.allclose(grad, parameter.grad, atol=2e-6, rtol=1e-3)
    figures = stats.finished(grad_norm=1.0, num_samples=len(samples))
    assert figures.off_policy_tokens == len(weights) == num_tokens - 5
    assert figures.off_policy_weight_mean == pytest.approx(sum(weights) / len(weights), rel=1e-4)
    at_bound = sum(weight in (low, high) for weight in weights)
    assert 0 < at_bound < len(weights)
    assert figures.off_policy_clipped == pytest.approx(at_bound / len(weights))
    ess = sum(weights) ** 2 / (len(weights) * sum(weight**2 for weight in weights))
    assert figures.off_policy_ess == pytest.approx(ess, rel=1e-4)
    assert figures.fresh_tokens == 5, "only what the policy itself drew is compared with the engine's logprobs"
    assert figures.fresh_logprob_diff_max < 1e-4


@pytest.mark.parametrize("settings", [{"correction": "icepop", "old_logprobs": "recomputed"}, {"algorithm": "gspo"}])
def test_other_corrections_leave_off_policy_samples_to_theirs(
    plain: Plain, tiny_model_dir: Path, settings: dict[str, Any]
) -> None:
    """A greedy sample's weight is far below icepop's band, and must not be masked by it."""
    (sample, (policy, _)) = drawn_sample(plain, WAYS["greedy"], 3)
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", **settings))
    (step,) = learner.train([sample], fresh_version=0, seed=0)
    assert step.dropped == 0.0
    assert step.off_policy_weight_mean == pytest.approx(float(np.mean(np.exp(policy))), rel=1e-3)
    assert step.grad_norm > 0


def test_a_token_that_the_recomputed_truncation_would_not_keep_is_counted(plain: Plain, tiny_model_dir: Path) -> None:
    sample, _ = drawn_sample(plain, {"top_k": 3}, 1)
    ids = sample.output_ids.copy()
    logits = plain.logits([int(token) for token in sample.prompt_ids])
    ids[0] = int(np.argmin(logits))
    moved = replace(sample, output_ids=ids)
    assert scores_of(tiny_model_dir, [moved]).outside[sample.call_id] >= 1


def test_what_the_engine_says_of_the_kept_tokens_is_the_behaviour(plain: Plain, tiny_model_dir: Path) -> None:
    """Recorded under older weights, so that what is recomputed would differ; and where a grammar hides the support."""
    truncated, (policy, behaviour) = drawn_sample(plain, {"temperature": 1.3, "top_k": 5}, 3)
    constrained, _ = drawn_sample(plain, {"temperature": 1.3, "top_k": 5}, 4)
    constrained = replace(constrained, behaviour=behaviour_of({"temperature": 1.3, "top_k": 5, "json_schema": "{}"}))
    told = np.asarray(behaviour, np.float32) - np.linspace(0.1, 0.9, len(behaviour), dtype=np.float32)
    samples = [replace(sample, sampling_logprobs=told) for sample in (truncated, constrained)]
    found = scores_of(tiny_model_dir, samples)
    for sample in samples:
        assert found.behaviour[sample.call_id].tolist() == told.tolist()
        assert found.outside[sample.call_id] == 0
    assert found.policy[truncated.call_id] == pytest.approx(policy, abs=1e-4)

    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu", off_policy={"low": 0.05, "high": 1.4}))
    (step,) = learner.train([samples[0]], fresh_version=0, seed=0)
    weights = [min(max(math.exp(pi - float(mu)), 0.05), 1.4) for pi, mu in zip(policy, told, strict=True)]
    assert step.off_policy_weight_mean == pytest.approx(sum(weights) / len(weights), rel=1e-4)


def test_a_constraint_leaves_the_recorded_logprob_as_it_is() -> None:
    for sampling in ({"json_schema": "{}"}, {"json_schema": "{}", "top_p": 0.9}, {"tool_choice": "required"}):
        how = behaviour_of(sampling)
        assert how.is_changed and not how.is_unknown
    assert behaviour_of({"json_schema": "{}", "top_k": 20}).is_unknown
    assert behaviour_of({"logit_bias": {"5": 1}, "min_p": 0.1}).is_unknown
    assert not behaviour_of({"response_format": {"type": "text"}, "tool_choice": "auto", "top_k": -1}).is_off_policy
