"""Routing replay: with an engine's experts a model has the engine's logprobs, and without them it has not.

The engine's router differs from the trained one by noise that decides between experts with equal logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support_gradients import drifted_samples
from support_megatron_models import make_latent
from support_mixture import make_torn, routed_by
from support_model import make_tiny_model
from transformers import AutoConfig

from weir.trainer.credit.samples import Sample
from weir.trainer.errors import TrainerUsageError
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.scoring import score
from weir.trainer.model.batching import Layout, lay_out, micro_batches
from weir.trainer.model.routing_replay import RoutedShape
from weir.trainer.rounds.preflight import check_replay
from weir.trainer.settings.config import TrainerConfig

CPU = torch.device("cpu")
EXACT = 1e-5
FAR = 0.05


@pytest.fixture(scope="module", params=["qwen3_moe", "deepseek_v3"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The trained model and the engine's."""
    root, family = tmp_path_factory.mktemp("torn"), request.param
    return make_torn(root / "trained", family=family), make_torn(root / "engine", noise_seed=7, family=family)


def settings(**more: Any) -> TrainerConfig:
    return TrainerConfig(device="cpu", token_budget=120, **more)


@pytest.fixture(scope="module")
def samples(folders: tuple[Path, Path]) -> list[Sample]:
    """Branching samples with the experts of the engine."""
    return [routed_by(folders[1], sample) for sample in drifted_samples(folders[1], settings(), 3)]


def make_plain(folder: Path) -> Path:
    return make_tiny_model(folder, family="qwen3_moe")


def computed(folder: Path, samples: list[Sample], config: TrainerConfig) -> tuple[Any, dict[str, torch.Tensor]]:
    """Logprobs by call, and the gradient of a step by parameter."""
    learner = Learner(folder, config)
    logprobs = score(learner.model, samples, config, CPU, learner.ranks, routed=config.routing_replay)
    learner.score(samples)
    learner.accumulate(samples, 2)
    gradients = {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}
    return logprobs, gradients


def furthest(found: Any, expected: Any) -> float:
    return max(float(np.abs(found[name] - expected[name]).max()) for name in expected)


WAYS: list[dict[str, Any]] = [
    {},
    {"share_prefixes": False},
    {"gradient_checkpointing": True},
    {"lora_rank": 4, "lora_targets": ["o_proj"]},
]


@pytest.mark.parametrize("more", WAYS)
def test_logprobs_are_those_of_the_engine_whose_experts_are_replayed(
    folders: tuple[Path, Path], samples: list[Sample], more: dict[str, Any]
) -> None:
    of_engine = {sample.call_id: sample.old_logprobs for sample in samples}
    found, _ = computed(folders[0], samples, settings(routing_replay=True, **more))
    alone, _ = computed(folders[0], samples, settings(**more))
    assert furthest(found, of_engine) < EXACT
    assert furthest(alone, of_engine) > FAR


@pytest.mark.parametrize("make", [make_plain, make_latent])
@pytest.mark.parametrize("more", WAYS)
def test_gradients_are_those_of_a_model_that_chooses_the_same_experts(
    tmp_path: Path, make: Callable[[Path], Path], more: dict[str, Any]
) -> None:
    folder = make(tmp_path / "plain")
    samples = [routed_by(folder, sample) for sample in drifted_samples(folder, settings(), 5)]
    expected, gradients = computed(folder, samples, settings(**more))
    found, own = computed(folder, samples, settings(routing_replay=True, **more))
    assert furthest(found, expected) < EXACT
    assert own.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert float((own[name] - gradient).norm()) <= 1e-5 * float(gradient.norm()) + 1e-8, name


def test_the_reference_routes_for_itself(folders: tuple[Path, Path], samples: list[Sample]) -> None:
    config = settings(routing_replay=True, kl="k3", kl_coef=0.1)
    learner = Learner(folders[0], config)
    alone, _ = computed(folders[0], samples, settings())
    assert furthest(learner._score_by_reference(samples), alone) < EXACT
    assert furthest(learner._score_by_policy(samples), alone) > 0.01


def test_a_critic_and_supervised_rows_route_for_themselves(folders: tuple[Path, Path], samples: list[Sample]) -> None:
    critics = [Learner(folders[0], settings(routing_replay=on, algorithm="ppo")) for on in (True, False)]
    critics[0]._score_by_policy(samples)
    values = [learner._score_by_critic(samples) for learner in critics]
    assert values[0] is not None and furthest(values[0], values[1]) == 0.0


def test_a_prefix_is_shared_as_far_as_its_experts_are(folders: tuple[Path, Path], samples: list[Sample]) -> None:
    sample = max(samples, key=lambda one: len(one.ids))
    assert sample.routed_experts is not None
    length = len(sample.ids) - 1
    other = sample.routed_experts.copy()
    chosen = RoutedShape.of(AutoConfig.from_pretrained(folders[0])).chosen
    other[length // 2 :, -chosen:] = [7, 0, 3, 4][:chosen]  # in the last layer
    twins = [sample, replace(sample, call_id="other", routed_experts=other)]
    tokens = [lay_out(twins, Layout.TREE, CPU, routed=routed).num_tokens for routed in (False, True)]
    assert tokens == [length, length + length - length // 2]
    assert [len(part) for part in micro_batches(twins, length, Layout.TREE, routed=True)] == [1, 1]
    assert [len(part) for part in micro_batches(twins, length, Layout.TREE)] == [2]
    together, _ = computed(folders[0], twins, settings(routing_replay=True))
    for twin in twins:
        alone, _ = computed(folders[0], [twin], settings(routing_replay=True))
        assert furthest({twin.call_id: together[twin.call_id]}, alone) < EXACT
    assert furthest({"x": together["other"]}, {"x": together[sample.call_id]}) > 1e-4


def test_what_cannot_be_replayed_is_refused_by_name(
    folders: tuple[Path, Path], samples: list[Sample], tiny_model_dir: Path
) -> None:
    learner = Learner(folders[0], settings(routing_replay=True))
    experts = samples[0].routed_experts
    assert experts is not None
    unseen = np.zeros_like(experts)  # what an engine gives that does not see its routers' choices
    for wrong, told in (
        (None, "no experts"),
        (experts[:, :2], "2 experts up to"),
        (experts + 8, f"{experts.shape[1]} experts up to"),
        (unseen, "an expert that a token goes to twice"),
    ):
        with pytest.raises(TrainerUsageError, match=told):
            learner.train([replace(samples[0], routed_experts=wrong)], fresh_version=0, seed=0)
    for refused in (lambda: Learner(tiny_model_dir, settings(routing_replay=True)), None):
        with pytest.raises(TrainerUsageError, match="this model is qwen3"):
            refused() if refused is not None else check_replay(settings(routing_replay=True), tiny_model_dir)
    check_replay(settings(), tiny_model_dir)
    with pytest.raises(ValueError, match="compile_layers does not go with routing_replay"):
        settings(routing_replay=True, compile_layers=True)
