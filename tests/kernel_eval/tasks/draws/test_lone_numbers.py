"""Other values of lone numbers: those with which a task goes ways that it does not go with its own."""

from __future__ import annotations

import pytest

from weir.kernel_eval.tasks.input_variants import Draw, Variant
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.warmup = 1000

    def forward(self, x, number):
        FUNCTION

def get_inputs():
    return [torch.randn(16, 64), NUMBER]
"""


@pytest.mark.parametrize(
    ("function", "number", "expected"),
    [
        ("return x * 2 if number < 1000 else x", "10", [1000, 10_001]),
        ("return x * 2 if number < 1000 else x", "torch.tensor(10)", [1000, 10_001]),
        ("return torch.where(number > self.warmup, x, x * 2)", "torch.tensor(10)", [1001, 1000, 10_001]),
        ("return x * min(number / self.warmup, 1.0)", "10", [1001, 1000, 10_001]),
        ("return x * (number / self.warmup).clamp(max=1.0)", "torch.tensor([10])", [1001, 1000, 10_001]),
        ("return x * 2 if number % 7 == 0 else x", "10", [7, 1001]),
        ("return x.relu() if number else x", "True", [0]),
        ("return x if number == -1 else x * number", "3", [-1]),
        ("return x * 2 if number > 0.5 else x", "0.3", [0.55, 0.5, 11_000]),
    ],
)
def test_a_task_is_asked_for_the_ways_that_another_number_takes(
    function: str, number: str, expected: list[float]
) -> None:
    assert numbers_of(function, number) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("function", "number"),
    [
        ("return x * number", "10"),
        ("return x / (1 - 0.9**number)", "3"),
        ("for _ in range(number): x = x * 2\n        return x", "3"),  # of no step there is no launch
        ("return x[:, :number] * 2", "16"),
    ],
)
def test_a_number_that_decides_nothing_stays_near_the_tasks_own(function: str, number: str) -> None:
    assert numbers_of(function, number) == []


def numbers_of(function: str, number: str) -> list[float]:
    reference = Reference(TASK.replace("FUNCTION", function).replace("NUMBER", number), 30.0)
    model = reference.build([], 1)
    turned = [draw for draw in reference.more_draws(model) if draw is Draw.TURNED]
    questions = [reference.question(model, 5, Variant(Draw.TURNED, number=at)) for at in range(len(turned))]
    return [float(inputs[1]) for inputs, _, _ in questions]
