"""The load-balancing loss of a step against transformers' function over all of the step's sequences at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support_gradients import drifted_samples
from support_megatron_models import make_moe
from support_samples import make_rows
from transformers import Qwen3MoeForCausalLM

from weir.trainer.learner.learner import Learner
from weir.trainer.model import token_model
from weir.trainer.model.ops.token_logprobs import token_logprobs
from weir.trainer.settings.config import SftConfig, TrainerConfig
from weir.trainer.sft.supervised_learner import SupervisedLearner

COEF = 0.5
Gradients = dict[str, torch.Tensor]


def gradients_of(learner: Learner, samples: list[Any], rows: list[Any]) -> tuple[Gradients, float]:
    learner.score(samples)
    stats = learner.accumulate(samples, fresh_version=2)
    learner.accumulate_mixed(rows)
    found = {
        name.removeprefix("network."): parameter.grad.clone()
        for name, parameter in learner.model.named_parameters()
        if parameter.grad is not None
    }
    return found, stats.balance_loss


def of_transformers(folder: Path, sequences: list[Any]) -> tuple[Gradients, float]:
    """Value and gradient of the loss of padded sequences, without their last tokens."""
    network = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    inputs = [torch.from_numpy(sequence.ids[:-1].astype("int64")) for sequence in sequences]
    ids = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(one) for one in inputs], batch_first=True)
    loss = COEF * network(input_ids=ids, attention_mask=mask).aux_loss
    loss.backward()
    found = {name: own.grad for name, own in network.named_parameters() if own.grad is not None}
    return found, float(loss.detach())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"share_prefixes": False, "token_budget": 60},
        {"token_budget": 60, "gradient_checkpointing": True, "offload_activations": True},
    ],
    ids=["trees", "packed", "recomputed"],
)
def test_a_step_adds_the_loss_of_all_its_tokens_however_they_are_laid_out(tmp_path: Path, more: dict[str, Any]) -> None:
    asks = make_moe(tmp_path / "asks", output_router_logits=True, router_aux_loss_coef=COEF)
    plain = make_moe(tmp_path / "plain", router_aux_loss_coef=COEF)
    config = TrainerConfig(device="cpu", sft_files=["a fixed set of rows"], sft_coef=0.25, **more)
    samples, rows = drifted_samples(asks, TrainerConfig(device="cpu"), 0)[:9], make_rows([5, 3, 9])
    with_loss, value = gradients_of(Learner(asks, config), samples, rows)
    without, nothing = gradients_of(Learner(plain, config), samples, rows)
    of_samples, expected = of_transformers(asks, samples)
    of_rows, _ = of_transformers(asks, rows)
    assert nothing == 0.0
    assert value == pytest.approx(expected, rel=1e-5)
    assert any("gate.weight" in name for name in of_samples)
    for name, own in of_samples.items():
        added = with_loss[name] - without[name]
        whole = own + 0.25 * of_rows[name]
        assert float((added - whole).norm()) <= 1e-5 * float(whole.norm()) + 1e-6 * float(without[name].norm()), name


def test_passes_outside_of_a_step_add_nothing(tmp_path: Path) -> None:
    folder = make_moe(tmp_path / "asks", output_router_logits=True, router_aux_loss_coef=COEF)
    samples = drifted_samples(folder, TrainerConfig(device="cpu"), 0)[:2]
    learner = Learner(folder, TrainerConfig(device="cpu"))
    (step,) = learner.train(samples, fresh_version=2, seed=0)
    assert step.balance_loss is not None and step.balance_loss > 0
    assert learner.model.balance is not None and not learner.model.balance.is_active


def test_what_is_counted_before_a_step_stops_before_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_moe(tmp_path / "asks", output_router_logits=True, router_aux_loss_coef=COEF)
    rows = make_rows([5, 3, 9])
    learner = Learner(
        folder, TrainerConfig(device="cpu", sft_files=["a fixed set of rows"], sft_coef=1.0, token_budget=8)
    )
    targets: list[int] = []

    def counted(hidden: torch.Tensor, *others: Any) -> Any:
        targets.append(len(hidden))
        return token_logprobs(hidden, *others)

    monkeypatch.setattr(token_model, "token_logprobs", counted)
    learner.accumulate_mixed(rows)
    assert len(targets) == 2 * 3, "every row is a micro-batch, which is counted and then trained on"
    assert sum(targets) == sum(row.num_targets for row in rows)


def test_a_cold_start_steps_by_the_gradient_of_both_losses(tmp_path: Path) -> None:
    """Its first step is lr times the gradient's sign, where that is far from 0."""
    folder = make_moe(tmp_path / "asks", output_router_logits=True, router_aux_loss_coef=COEF)
    rows, lr = make_rows([5, 3, 9]), 1e-3
    learner = SupervisedLearner(SftConfig(device="cpu", lr=lr, warmup_steps=0, weight_decay=0.0), folder, 1)
    learner.step(rows)
    of_balance, _ = of_transformers(folder, rows)
    plain = make_moe(tmp_path / "plain", router_aux_loss_coef=COEF)
    other = Learner(plain, TrainerConfig(device="cpu", sft_files=["a fixed set of rows"], sft_coef=1.0))
    other.accumulate_mixed(rows)
    differs = 0
    for name, weights in Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32).named_parameters():
        if not name.endswith("gate.weight"):
            continue
        alone = other.model.network.get_parameter(name).grad
        both = alone + of_balance[name]
        moved = learner.model.network.get_parameter(name).detach() - weights.detach()
        clear = both.abs() > 1e-3 * both.abs().max()
        assert torch.allclose(moved[clear], -lr * both.sign()[clear], rtol=1e-2)
        differs += int((both.sign() != alone.sign())[clear].sum())
    assert differs > 0, "the balance loss decides some of the signs"
