"""Losses, gradients, advantages and divergences against those of verl and TRL (golden/make_vectors.py).

Where the libraries differ among themselves, the settings of a vector say which of the two it is: TRL's epsilon_high of
CISPO is the bound itself, its GRPO has no dual clip and its advantages divide by std + 1e-4; verl's SAPO and GMPO know
one mean only, and it whitens no single value.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from weir.trainer.advantages import ADVANTAGES, whitened
from weir.trainer.config import TrainerConfig
from weir.trainer.divergence import DIVERGENCES
from weir.trainer.loss_means import LOSS_MEANS
from weir.trainer.objective import SampledTokens, objective
from weir.trainer.sequences import Sequences

VECTORS = json.loads((Path(__file__).parent / "golden" / "vectors.json").read_text())
INPUTS = VECTORS["inputs"]


def named(vector: dict[str, Any]) -> str:
    return f"{vector['library']}-" + "-".join(str(value) for value in vector["settings"].values())


@pytest.mark.parametrize("vector", VECTORS["losses"], ids=named)
def test_loss_and_gradient_are_those_of_the_library(vector: dict[str, Any]) -> None:
    config = TrainerConfig(**vector["settings"])
    loss, gradient = loss_and_gradient(config)
    assert loss == pytest.approx(vector["loss"], rel=1e-6, abs=1e-6)
    assert gradient == pytest.approx(vector["gradient"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_are_those_of_verl(name: str) -> None:
    found: list[float] = []
    for group in dict.fromkeys(INPUTS["groups"]):
        rewards = [r for r, g in zip(INPUTS["rewards"], INPUTS["groups"], strict=True) if g == group]
        found.extend(ADVANTAGES[name](rewards, rewards))
    assert found == pytest.approx(VECTORS["advantages"][name], rel=1e-6, abs=1e-6)


def test_returns_whitened_over_the_round_are_those_of_verl() -> None:
    calls = [f"c{i}" for i in range(len(INPUTS["rewards"]))]
    found = whitened(dict(zip(calls, INPUTS["rewards"], strict=True)), dict(zip(calls, INPUTS["lengths"], strict=True)))
    assert list(found.values()) == pytest.approx(VECTORS["advantages"]["reinforce_plus_plus"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences_are_those_of_verl(name: str) -> None:
    found = DIVERGENCES[name](tensor("logprobs"), tensor("reference"))
    assert found.tolist() == pytest.approx(VECTORS["divergences"][name], rel=1e-6, abs=1e-6)


def loss_and_gradient(config: TrainerConfig) -> tuple[float, list[float]]:
    """The loss of one step over all sequences, and its derivative by each logprob."""
    logprobs, lengths = tensor("logprobs").requires_grad_(), INPUTS["lengths"]
    sequences = Sequences.of(lengths)
    tokens = SampledTokens(
        logprobs=logprobs,
        entropy=torch.zeros_like(logprobs),
        recorded=tensor("recorded"),
        recomputed=tensor("recomputed"),
        reference=tensor("reference"),
        advantages=sequences.spread(tensor("advantages")),
        staleness=torch.zeros(len(logprobs), dtype=torch.int64),
        sequences=sequences,
    )
    weights = LOSS_MEANS[config.loss_mean](lengths, INPUTS["groups"], float(config.loss_constant or 1))
    loss = (objective(tokens, config).losses.loss * sequences.spread(torch.tensor(weights))).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return float(loss.detach()), gradient.tolist()


def tensor(name: str) -> torch.Tensor:
    return torch.tensor(INPUTS[name])
