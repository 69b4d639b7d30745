"""Batches: within their budget, without leaks, and with the same logprobs and gradients in every layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_model import Family, make_tiny_model
from transformers import AutoModelForCausalLM

from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.model.batching import Layout, lay_out, micro_batches
from weir.trainer.model.token_model import TokenModel, load_model

CPU = torch.device("cpu")


def make_row(ids: list[int], num_prompt: int) -> SupervisedRow:
    return SupervisedRow(ids=np.asarray(ids, np.int32), targets=np.arange(len(ids)) >= num_prompt)


def branching_rows(seed: int = 0) -> list[SupervisedRow]:
    """Two groups: samples of one prompt, a second turn that extends the first, and a separate row."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> list[int]:
        return [int(token) for token in random.integers(10, 200, count)]

    prompt, other = draw(21), draw(5)
    first, second = prompt + draw(9), prompt + draw(12)
    turns = first + draw(7)
    return [
        make_row(first, 21),
        make_row(second, 21),
        make_row(first, 21),
        make_row(turns + draw(7), len(turns)),
        make_row(turns + draw(8), len(turns)),
        make_row(other + draw(30), 5),
    ]


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=50), min_size=1, max_size=20),
    st.integers(1, 200),
    st.sampled_from(list(Layout)),
)
def test_micro_batches_hold_every_row_once_and_compute_no_more_than_the_budget(
    sequences: list[list[int]], budget: int, layout: Layout
) -> None:
    rows = [make_row(ids, 1) for ids in sequences]
    batches = micro_batches(rows, budget, layout)
    assert sorted(id(row) for batch in batches for row in batch) == sorted(id(row) for row in rows)
    for batch in batches:
        computed = lay_out(batch, layout, CPU).num_tokens
        assert len(batch) == 1 or layout is Layout.TREE or computed <= budget


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama"])
@pytest.mark.parametrize("layout", list(Layout))
def test_logprobs_are_those_of_each_row_alone(tmp_path: Path, family: Family, layout: Layout) -> None:
    folder = make_tiny_model(tmp_path / "model", vocab_size=512, seed=0, family=family)
    rows = branching_rows()
    with torch.no_grad():
        found = model_of(folder, layout)(lay_out(rows, layout, CPU)).logprobs
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    alone = []
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))
        with torch.no_grad():
            logprobs = torch.log_softmax(plain(ids[None]).logits[0, :-1], -1)
        alone.append(logprobs.gather(1, ids[1:, None])[:, 0][torch.from_numpy(row.targets[1:])])
    assert torch.allclose(found, torch.cat(alone), atol=2e-6)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), order=st.randoms(use_true_random=False))
def test_trees_packed_rows_and_padding_give_one_gradient(tiny_model_dir: Path, seed: int, order: object) -> None:
    rows = branching_rows(seed)
    weights = {id(row): weight for row, weight in zip(rows, np.random.default_rng(seed).normal(size=6), strict=True)}
    gradients = []
    for layout in Layout:
        order.shuffle(rows)  # type: ignore[attr-defined]
        gradients.append(gradient(tiny_model_dir, rows, weights, layout))
    for other in gradients[1:]:
        assert float((other - gradients[0]).norm()) <= 1e-5 * float(gradients[0].norm())


def test_a_tree_computes_shared_tokens_once() -> None:
    rows = branching_rows()
    flat, tree = (lay_out(rows, layout, CPU).num_tokens for layout in (Layout.PACKED, Layout.TREE))
    assert flat == 29 + 32 + 29 + 43 + 44 + 34  # the last token is no input
    assert tree == 21 + 11 + 16 + 6 + 7 + 34  # the prompt, the second answer, the first with what follows, two turns


def test_another_sequence_in_the_row_changes_nothing_of_a_sequence(tiny_model_dir: Path) -> None:
    """NaN in one sequence's embeddings stays there."""
    model = model_of(tiny_model_dir, Layout.PACKED)
    rows = [make_row([11, 12, 13, 14], 1), make_row([250, 250, 250], 1), make_row([15, 16, 17], 1)]
    with torch.no_grad():
        before = model(lay_out(rows, Layout.PACKED, CPU)).logprobs
        model.network.get_input_embeddings().weight[250] = float("nan")
        head = model.network.get_output_embeddings()
        head.weight = torch.nn.Parameter(torch.nan_to_num(head.weight.detach()))  # tied: NaN logits are not the point
        after = model(lay_out(rows, Layout.PACKED, CPU)).logprobs
    assert torch.isnan(after[3:5]).all()
    assert not torch.isnan(after[[0, 1, 2, 5, 6]]).any()
    assert before.shape == after.shape


def model_of(folder: Path, layout: Layout) -> TokenModel:
    model = load_model(folder, CPU)
    if layout is Layout.PADDED:
        model.network.set_attn_implementation("sdpa")
    return model


def gradient(folder: Path, rows: list[SupervisedRow], weights: dict[int, float], layout: Layout) -> torch.Tensor:
    model = model_of(folder, layout)
    by_row = np.repeat([weights[id(row)] for row in rows], [int(row.targets[1:].sum()) for row in rows])
    told = model(lay_out(rows, layout, CPU))
    (told.logprobs.exp() * torch.from_numpy(by_row)).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
