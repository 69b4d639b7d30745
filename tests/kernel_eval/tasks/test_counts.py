"""Counts of calls that a task's model holds: which values lead it where its first calls do not."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.branches import Count, with_count
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.register_buffer("kind", torch.ones((), dtype=torch.long))

    def forward(self, x):
        self.step += 1
        return FUNCTION

def get_inputs():
    return [torch.randn(8, 16)]
"""

WAYS = {
    "x * (self.step / 100.0).clamp(max=1.0)": [100],
    "x if int(self.step) < 50 else -x": [49],
    "torch.where(self.step > 7, x, -x)": [7],
    "x * self.step": [],
    "x * self.kind": [],
    "x * (self.step / 100000.0).clamp(max=1.0)": [100000],
}


@pytest.mark.parametrize("function", WAYS)
def test_a_count_is_found_that_leads_another_way(function: str) -> None:
    reference = Reference(TASK.replace("FUNCTION", function), 30.0)
    model = reference.build([], 1)
    assert reference.branches.counts(model) == [Count("step", value) for value in WAYS[function]]


def test_a_count_that_the_buffer_does_not_hold_is_left_out() -> None:
    source = TASK.replace("FUNCTION", "x * (self.step / 300.0).clamp(max=1.0)").replace("torch.long", "torch.int8")
    reference = Reference(source, 30.0)
    assert reference.branches.counts(reference.build([], 1)) == []


def test_a_model_with_another_count_is_a_copy() -> None:
    model = Reference(TASK.replace("FUNCTION", "x"), 30.0).build([], 1)
    changed = with_count(model, Count("step", 9))
    assert (int(changed.step), int(model.step)) == (9, 0)


def test_a_count_may_be_a_parameter() -> None:
    model = torch.nn.Module()
    model.step = torch.nn.Parameter(torch.zeros(()))
    assert float(with_count(model, Count("step", 9)).step) == 9.0
