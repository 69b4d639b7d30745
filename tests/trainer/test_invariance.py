"""Gradients do not depend on how a step is computed: micro-batches, order, ranks, shared tokens, trees or sequences.

The gradient is that of the whole objective, for every algorithm with every loss mean, and whatever else may be set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_gradients import drifted_samples, make_models, whole_gradient
from support_ranks import RankPair, rank_pair

from weir.trainer.settings.algorithms import ALGORITHMS, AlgorithmConfig
from weir.trainer.settings.config import TrainerConfig

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
LOSS_MEANS = get_args(AlgorithmConfig.model_fields["loss_mean"].annotation)
NEEDED: dict[str, dict[str, Any]] = {
    "gspo": {"clip_low": 0.04, "clip_high": 0.05},  # bfloat16 is coarser than the paper's bounds
    "constant": {"loss_constant": 12},
}
CORRECTIONS: list[dict[str, Any]] = [
    {},
    {"old_logprobs": "recomputed"},
    *({"correction": kind, "old_logprobs": "recomputed"} for kind in ("tis", "icepop", "decoupled")),
    {"correction": "decoupled", "old_logprobs": "interpolated"},
    *(
        {"correction": "mis", "old_logprobs": "recomputed", "correction_level": level, "correction_mode": mode}
        for level, mode in itertools.product(("token", "sequence", "geometric"), ("truncate", "clip", "mask"))
    ),
]
DIVERGENCES: list[dict[str, Any]] = [
    {},
    *({"kl": kl, "kl_coef": 0.1, **more} for kl in ("k1", "k2", "k3") for more in ({}, {"kl_ratio": True})),
    {"kl": "k1", "kl_coef": 0.1, "kl_in": "reward"},
]
OTHERS: list[dict[str, Any]] = [
    {},
    {"entropy_coef": 0.01},
    {"off_policy_delta": 0.4},
    {"dual_clip": 1.5},
    {"sft_files": ["a fixed set of rows"], "sft_coef": 0.5},
]
MORE = [a | b | c for a, b, c in itertools.product(CORRECTIONS, DIVERGENCES, OTHERS)]
DRAWN = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy and a reference model."""
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def pair() -> Iterator[RankPair]:
    """Two ranks."""
    with rank_pair() as running:
        yield running


def configs(algorithm: str, loss_mean: str, precision: str = "float32") -> st.SearchStrategy[TrainerConfig]:
    """All settings that make sense with these."""
    given = {"algorithm": algorithm, "loss_mean": loss_mean, "precision": precision, "device": "cpu"}
    given |= NEEDED.get(algorithm, {}) | NEEDED.get(loss_mean, {}) | {"token_budget": 100_000}

    def valid(more: dict[str, Any]) -> bool:
        try:
            TrainerConfig(**(given | more))
        except ValueError:
            return False
        return True

    return st.sampled_from(MORE).filter(valid).map(lambda more: TrainerConfig(**(given | more)))


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert float((found[name] - gradient).norm()) <= tolerance * float(gradient.norm()) + 1e-9, name


def check(models: tuple[Path, Path], config: TrainerConfig, data: st.DataObject) -> None:
    """One row with shared prefixes, against whatever else is drawn."""
    samples = drifted_samples(models[0], config, data.draw(st.integers(0, 10_000)))
    changes = {"token_budget": data.draw(st.integers(1, 300)), "share_prefixes": data.draw(st.booleans())}
    shuffled = data.draw(st.permutations(samples))
    found = whole_gradient(*models, config.model_copy(update=changes), list(shuffled))
    assert_equal(found, whole_gradient(*models, config, samples), TOLERANCE[config.precision])


@pytest.mark.parametrize("loss_mean", LOSS_MEANS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(DRAWN, max_examples=2)
@given(data=st.data())
def test_batches_order_and_sharing_change_no_gradient(
    models: tuple[Path, Path], algorithm: str, loss_mean: str, data: st.DataObject
) -> None:
    check(models, data.draw(configs(algorithm, loss_mean)), data)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(DRAWN, max_examples=2)
@given(data=st.data(), loss_mean=st.sampled_from(LOSS_MEANS))
def test_nor_do_they_in_bfloat16(
    models: tuple[Path, Path], algorithm: str, loss_mean: str, data: st.DataObject
) -> None:
    check(models, data.draw(configs(algorithm, loss_mean, "bfloat16")), data)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(DRAWN, max_examples=1)
@given(data=st.data(), loss_mean=st.sampled_from(LOSS_MEANS))
def test_two_ranks_have_the_gradient_of_one(
    models: tuple[Path, Path], pair: RankPair, algorithm: str, loss_mean: str, data: st.DataObject
) -> None:
    config = data.draw(configs(algorithm, loss_mean, data.draw(st.sampled_from(["float32", "bfloat16"]))))
    samples = drifted_samples(models[0], config, data.draw(st.integers(0, 10_000)))
    expected = whole_gradient(*models, config, samples)
    for sharing in (1, 2):  # the ranks share micro-batches, or each one's tokens
        budget = data.draw(st.integers(1, 100))
        split = config.model_copy(update={"token_budget": budget, "context_parallel": sharing})
        assert_equal(pair.whole_gradient(*models, split, samples), expected, TOLERANCE[config.precision])
