"""Changes of whole inputs, after which a task decides otherwise about a number that it makes of all of one."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import Draw, Variant, plan
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        FUNCTION

def get_inputs():
    return [torch.randn(16, 64), torch.randn(16, 64)]
"""
# The function, the inputs that are changed as a whole, and how many times as large they become.
DECIDING = {
    "return torch.where(x.norm() > 0, y.norm() / x.norm(), 1.0) * y": [("x", 0.0)],
    "return y * (x.norm() / y.norm()).clamp(max=10.0)": [("x", 100.0)],
    "return x - y if x.mean().item() > 3 else x + y": [("x", 100.0)],
    "return torch.where((x > 0).any(), x - y, x + y)": [("x", 100.0)],
    "return x * y / (x > 0).sum().clamp(min=1)": [("x", 100.0)],
    "return x * 2 if (x == 0).all() or y.norm() == 0 else x * y": [("x", 0.0), ("y", 0.0)],
}


def drawn(function: str) -> list[list[torch.Tensor]]:
    reference = Reference(TASK.replace("FUNCTION", function), 30.0)
    model = reference.build([], 1)
    turned = [
        variant for variant in plan(3, frozenset(), 1, more=reference.more_draws(model)) if variant.draw is Draw.TURNED
    ]
    questions = [reference.question(model, 5, variant) for variant in turned]
    assert all(variant.draw is Draw.TURNED for _, _, variant in questions)
    return [inputs for inputs, _, _ in questions]


@pytest.mark.parametrize("function", DECIDING)
def test_inputs_are_changed_as_a_whole_until_a_task_decides_otherwise(function: str) -> None:
    questions = drawn(function)
    for name, size in DECIDING[function]:
        means = [float(inputs["xy".index(name)].abs().mean()) for inputs in questions]
        assert any(mean == pytest.approx(0.8 * size, rel=0.1, abs=0.0) for mean in means)


def test_a_bound_of_one_answer_is_met_from_both_sides_whatever_other_answers_there_are() -> None:
    questions = drawn("loss = x.logsumexp(-1).clamp(-50, 50).square().mean(); return loss, y.topk(8).indices")
    means = [float(inputs[0].mean()) for inputs in questions]
    assert min(means) == pytest.approx(-100, abs=1)
    assert max(means) == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    "function", ["return x + y", "return torch.relu(x - y.mean())", "return x / (y.norm() + 1e-6)"]
)
def test_a_task_that_asks_nothing_of_a_single_number_gets_no_such_draw(function: str) -> None:
    assert drawn(function) == []


def test_a_draw_of_a_change_that_is_not_there_is_the_tasks_own() -> None:
    reference = Reference(TASK.replace("FUNCTION", "return x + y"), 30.0)
    model = reference.build([], 1)
    inputs, _, _ = reference.question(model, 5, Variant(Draw.TURNED, number=7))
    assert torch.equal(inputs[0], reference.inputs(5)[0])
