"""Layers fused by torch.compile against the same layers as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from weir.scripts.bench.random_samples import random_ids, random_sample
from weir.trainer.credit.samples import Sample
from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.batching import lay_out
from weir.trainer.model.expert_balance import ExpertBalance
from weir.trainer.model.token_model import TokenModel, load_model

VOCABULARY = 64
HOW: list[dict[str, bool]] = [{}, {"checkpointing": True, "offloads": True}]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("how", HOW, ids=["kept", "recomputed"])
def test_compiled_layers_compute_the_same_for_any_number_of_tokens(tiny_model_dir: Path, how: dict[str, bool]) -> None:
    model = load_model(tiny_model_dir, torch.device("cpu"), **how)  # type: ignore[arg-type]
    compiled = load_model(tiny_model_dir, torch.device("cpu"), **how)  # type: ignore[arg-type]
    compiled.compile_layers("eager")  # torch's reading of the layers, without the minute that inductor takes on a CPU
    _compare(model, compiled, _samples(2, 5))
    _compare(model, compiled, _samples(2, 7))  # torch 2.11 reads sizes as fixed, until there is a second one
    assert counters["graph_break"], "attention was compiled, whose segments differ each time"
    graphs = counters["stats"]["unique_graphs"]
    _compare(model, compiled, _samples(3, 9))
    assert counters["stats"]["unique_graphs"] == graphs > 0


def test_routers_that_are_watched_are_not_compiled(tiny_model_dir: Path) -> None:
    model = load_model(tiny_model_dir, torch.device("cpu"))
    model.balance = ExpertBalance(coef=0.1, experts=4, chosen=2)
    with pytest.raises(TrainerUsageError, match="compile_layers"):
        model.compile_layers()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("how", HOW, ids=["kept", "recomputed"])
def test_inductor_computes_the_same_on_a_gpu(tiny_model_dir: Path, how: dict[str, bool]) -> None:
    model = load_model(tiny_model_dir, torch.device("cuda"), **how)  # type: ignore[arg-type]
    compiled = load_model(tiny_model_dir, torch.device("cuda"), **how)  # type: ignore[arg-type]
    compiled.compile_layers()
    _compare(model, compiled, _samples(2, 5))
    _compare(model, compiled, _samples(3, 9))


def _compare(model: TokenModel, compiled: TokenModel, samples: list[Sample]) -> None:
    found = []
    for each in (model, compiled):
        batch = lay_out(samples, each.layout(), next(each.parameters()).device)
        each.zero_grad()
        predicted = each(batch)
        (predicted.logprobs + predicted.entropy).sum().backward()
        gradients = [parameter.grad for parameter in each.parameters() if parameter.grad is not None]
        found.append((predicted.logprobs, torch.cat([gradient.flatten() for gradient in gradients])))
    (plain, plain_gradient), (fused, fused_gradient) = found
    assert torch.allclose(fused, plain, atol=1e-5)
    assert torch.allclose(fused_gradient, plain_gradient, atol=1e-4, rtol=1e-3)


def _samples(count: int, half: int) -> list[Sample]:
    random = np.random.default_rng(0)
    prompt = random_ids(random, half, VOCABULARY)  # of all: a tree
    return [
        random_sample(at, prompt, random_ids(random, half + at, VOCABULARY), random, VOCABULARY) for at in range(count)
    ]
