"""Which ways a task decides, and whether huge values belong to its inputs for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from weir.kernel_eval.tasks.input_variants import HARDEST, Draw
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.watches.decisions import Decisions

SMALL, LARGE = torch.tensor([1.0, 2.0]), torch.tensor([900.0, 1.0])
DECIDING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "comparison": lambda x: torch.where(x < 500.0, x, 2 * x),
    "bound": lambda x: x.clamp(max=500.0),
    "bound in place": lambda x: x.clone().clamp_(max=500.0),
    "loss": lambda x: F.smooth_l1_loss(x, torch.zeros(2), beta=500.0),
    "huber loss": lambda x: F.huber_loss(x, torch.zeros(2), delta=500.0),
    "shrinkage": lambda x: F.hardshrink(x, 500.0),
}


@pytest.mark.parametrize("kind", DECIDING)
def test_a_decision_has_one_outcome_for_small_values_and_both_for_large_ones(kind: str) -> None:
    with Decisions() as small:
        DECIDING[kind](SMALL)
    with Decisions() as large:
        DECIDING[kind](LARGE)
    assert len(small.outcomes) == 1
    assert large.outcomes == {(0, True), (0, False)}


def test_decisions_are_numbered_in_order_and_those_on_integers_are_left_out() -> None:
    with Decisions() as decisions:
        _ = torch.arange(3) < 2
        _ = SMALL < 5, SMALL > 5
    assert decisions.outcomes == {(0, True), (1, False)}


def test_integers_that_are_asked_for_labels_that_are_ignored_and_positions_are_noted() -> None:
    labels, scores = torch.tensor([1, 2]), torch.randn(2, 5)
    with Decisions() as decisions:
        _ = labels != 7
        _ = labels * 2 == 9
        F.nll_loss(scores, labels, ignore_index=255)
    assert (decisions.integers, decisions.ignored, decisions.chooses) == ({7}, {255}, False)
    with Decisions() as choosing:
        scores.argmax(-1)
    assert choosing.chooses
    with Decisions() as rounding:
        scores.round().to(torch.int8)
    assert not rounding.chooses


TASK = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return FUNCTION

def get_inputs():
    return [torch.randn(16, 64), torch.randn(16, 64)]
"""
DRAWN = {
    "torch.where((x - y).abs() < 900, x, y).sum(1)": Draw.BEYOND,
    "(x + y).clamp(-2000, 2000).cumsum(1)": Draw.BEYOND,
    "F.smooth_l1_loss(x, y, beta=700.0)": Draw.BEYOND,
    "torch.where(x < y, x, y).sum(1)": Draw.HARD,  # smaller values decide it both ways
    "F.smooth_l1_loss(x, y)": Draw.POINTS,  # one operator, as the sum below
    "(x + y).sum(1) if x.shape[0] > 900 else x.sum(1)": Draw.POINTS,
    "(x * y).sum(1)": Draw.HARD,
}


@pytest.mark.parametrize("function", DRAWN)
def test_several_inputs_are_huge_where_a_task_decides_otherwise_for_them(function: str) -> None:
    reference = Reference(TASK.replace("FUNCTION", function), 30.0)
    inputs, _, variant = reference.question(reference.build([], 1), 3, HARDEST)
    assert variant.draw is DRAWN[function]
    num_huge = sum(int((x.abs() > 1000).sum()) for x in inputs)  # but for a few extremes
    assert (num_huge > 40) == (variant.draw is Draw.BEYOND)
