"""Losses, gradients, advantages and divergences against those of verl and TRL (golden/make_vectors.py).

Where the libraries differ among themselves, the settings of a vector say which of the two it is: TRL's epsilon_high of
CISPO is the bound itself, its GRPO has no dual clip and its advantages divide by std + 1e-4; verl's SAPO and GMPO know
one mean only, and it whitens no single value.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weir.trainer.credit.advantages import ADVANTAGES
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.critic import value_loss
from weir.trainer.losses.gae import token_credit
from weir.trainer.losses.kl import DIVERGENCES
from weir.trainer.losses.normalization import LOSS_MEANS
from weir.trainer.losses.objective import SampledTokens, objective
from weir.trainer.losses.sequences import Sequences
from weir.trainer.settings.config import TrainerConfig

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
    credit = token_credit(samples(), TrainerConfig(algorithm="reinforce_plus_plus"), values=None, penalties=None)
    found = [float(tokens.advantages[0]) for tokens in credit.values()]
    assert found == pytest.approx(VECTORS["advantages"]["reinforce_plus_plus"], rel=1e-6, abs=1e-6)


def test_returns_less_the_divergence_whitened_over_the_round_are_those_of_verl() -> None:
    config = TrainerConfig(
        algorithm="reinforce_plus_plus", old_logprobs="recomputed", kl="k1", kl_coef=0.1, kl_in="reward"
    )
    credit = token_credit(samples(), config, values=None, penalties=penalties("k1", 0.1))
    found = np.concatenate([tokens.advantages for tokens in credit.values()])
    assert found.tolist() == pytest.approx(VECTORS["token_advantages"]["reinforce_plus_plus_kl"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("vector", VECTORS["gae"], ids=lambda vector: f"gamma {vector['gamma']} lambda {vector['lam']}")
def test_generalised_advantages_are_those_of_verl(vector: dict[str, Any]) -> None:
    """The first two sequences are one branch for verl, with an observation between them."""
    config = TrainerConfig(
        algorithm="ppo", credit="trajectory", gae_gamma=vector["gamma"], gae_lambda=vector["lam"], kl="k1", kl_coef=0.1
    )
    found = token_credit(samples(), config, values=by_call("values"), penalties=penalties("k1", 0.1))
    advantages = np.concatenate([tokens.advantages for tokens in found.values()])
    returns = np.concatenate([tokens.returns for tokens in found.values() if tokens.returns is not None])
    assert advantages.tolist() == pytest.approx(vector["advantages"], rel=1e-5, abs=1e-5)
    assert returns.tolist() == pytest.approx(vector["returns"], rel=1e-5, abs=1e-5)


def test_the_value_loss_and_its_gradient_are_those_of_verl() -> None:
    vector = VECTORS["value_loss"]
    values = tensor("reference").requires_grad_()
    losses = value_loss(values, tensor("values"), tensor("logprobs"), vector["clip"])
    loss = losses.mean()
    (gradient,) = torch.autograd.grad(loss, values)
    assert float(loss.detach()) == pytest.approx(vector["loss"], rel=1e-6)
    assert gradient.tolist() == pytest.approx(vector["gradient"], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences_are_those_of_verl(name: str) -> None:
    found = DIVERGENCES[name](tensor("logprobs"), tensor("reference"))
    assert found.tolist() == pytest.approx(VECTORS["divergences"][name], rel=1e-6, abs=1e-6)


def by_call(name: str) -> dict[str, Any]:
    """A row of numbers, cut up by sequence."""
    parts = np.split(np.asarray(INPUTS[name], dtype=np.float32), np.cumsum(INPUTS["lengths"])[:-1])
    return {f"c{i}": part for i, part in enumerate(parts)}


def penalties(kind: str, coef: float) -> dict[str, Any]:
    divergence = DIVERGENCES[kind](tensor("recorded"), tensor("reference")) * coef
    parts = torch.split(divergence, INPUTS["lengths"])
    return {f"c{i}": part.numpy() for i, part in enumerate(parts)}


def samples() -> list[Sample]:
    """The sequences as samples with their rewards; the second follows the first."""
    return [
        Sample(
            call_id=f"c{i}",
            group_id=group,
            prompt_ids=np.zeros(1, np.int32),
            output_ids=np.zeros(length, np.int32),
            old_logprobs=np.zeros(length, np.float32),
            versions=np.zeros(length, np.int32),
            temperature=1.0,
            advantage=0.0,
            reward=reward,
            follows="c0" if i == 1 else None,
        )
        for i, (group, length, reward) in enumerate(
            zip(INPUTS["groups"], INPUTS["lengths"], INPUTS["rewards"], strict=True)
        )
    ]


def loss_and_gradient(config: TrainerConfig) -> tuple[float, list[float]]:
    """The loss of one step over all sequences, and its derivative by each logprob."""
    logprobs, lengths = tensor("logprobs").requires_grad_(), INPUTS["lengths"]
    sequences = Sequences.of(lengths)
    tokens = SampledTokens(
        logprobs=logprobs,
        entropy=tensor("entropies"),
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
