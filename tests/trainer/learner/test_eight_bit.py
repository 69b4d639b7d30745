"""AdamW with moments of 8 bits against torch's AdamW, and what either continues of the other's state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support_samples import branching_samples

from weir.trainer.learner.eight_bit import AdamW8bit
from weir.trainer.learner.learner import Learner
from weir.trainer.model.ops.eight_bit import BLOCK, KINDS, in_float
from weir.trainer.settings.config import TrainerConfig

HOW = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1}


def problem() -> tuple[torch.nn.Sequential, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(BLOCK, BLOCK), torch.nn.Tanh(), torch.nn.Linear(BLOCK, 3))
    inputs = torch.randn(256, BLOCK)
    return network, inputs, torch.sin(3 * inputs[:, :3])


def losses(network: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    found = []
    for _ in range(60):
        loss = (network(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def test_it_learns_as_adamw_does_and_its_first_step_is_the_same() -> None:
    (whole, x, y), (coded, _, _) = problem(), problem()
    expected = losses(whole, torch.optim.AdamW(whole.parameters(), **HOW), x, y)
    found = losses(coded, AdamW8bit(coded.parameters(), **HOW), x, y)
    assert found[:2] == pytest.approx(expected[:2], rel=1e-5)
    assert found[-1] == pytest.approx(expected[-1], rel=0.05)
    assert found[-1] < found[0] / 2
    assert found[2:] != expected[2:], "moments were rounded"


def test_rows_without_a_gradient_move_no_further_than_by_adamw() -> None:
    """Of an embedding's row whose token does not come again, first moments must not outlive the second."""
    (whole, coded) = (torch.nn.Parameter(torch.zeros(512, BLOCK)) for _ in range(2))
    torch.manual_seed(0)
    gradient = torch.randn(512, BLOCK) * torch.logspace(-8, 0, BLOCK)
    pairs = [(whole, torch.optim.AdamW([whole], **HOW)), (coded, AdamW8bit([coded], **HOW))]
    for parameter, optimizer in pairs:
        for step in range(20):
            parameter.grad = torch.zeros_like(gradient) if step else gradient.clone()
            optimizer.step()
    assert float(coded.detach().abs().max()) <= 1.5 * float(whole.detach().abs().max())


def test_a_large_parameter_is_stepped_in_parts_as_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for at_once in (1 << 20, 5 * BLOCK):
        monkeypatch.setattr("weir.trainer.learner.eight_bit._AT_ONCE", at_once)
        torch.manual_seed(0)
        parameter = torch.nn.Parameter(torch.randn(3, 7, BLOCK))
        optimizer = AdamW8bit([parameter], **HOW)
        for _ in range(3):
            parameter.grad = torch.randn(3, 7, BLOCK)
            optimizer.step()
        found.append(parameter.detach())
    assert torch.equal(*found)


def test_either_optimiser_continues_the_others_state(tiny_model_dir: Path, tmp_path: Path) -> None:
    samples = branching_samples(tiny_model_dir)
    whole, coded = (TrainerConfig(device="cpu", optimizer=name) for name in ("adamw", "adamw_8bit"))
    first = Learner(tiny_model_dir, coded)
    first.train(samples, fresh_version=0, seed=0)
    first.save(tmp_path)
    by_adamw = Learner(tmp_path, whole)
    assert by_adamw.num_steps == 1
    held = states(first)
    assert {kind for state in held.values() for kind in state} == {*KINDS, "exp_avg_scale", "exp_avg_sq_scale"}
    again = tmp_path / "again"
    again.mkdir()
    for name, state in states(by_adamw).items():
        assert state.keys() == set(KINDS)
        for kind, numbers in in_float(held[name]).items() if "exp_avg_scale" in held[name] else held[name].items():
            assert torch.equal(state[kind], numbers), (name, kind)
    by_adamw.save(again)
    back = Learner(again, coded)
    for name, state in states(back).items():
        assert state.keys() == held[name].keys()
        if "exp_avg_scale" in state:
            assert torch.allclose(in_float(state)["exp_avg"], in_float(held[name])["exp_avg"], rtol=0.02, atol=1e-4)
    back.train(samples, fresh_version=0, seed=1)
    assert back.num_steps == 2


def states(learner: Learner) -> dict[str, dict[str, torch.Tensor]]:
    """Moments by name of the parameter."""
    held = learner.stepper.optimizer.state
    return {
        name: {kind: value for kind, value in held[parameter].items() if kind != "step"}
        for name, parameter in learner.model.named_parameters()
        if parameter in held
    }
