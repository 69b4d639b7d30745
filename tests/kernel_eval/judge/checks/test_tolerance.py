"""Comparing an answer with the reference's: which errors are excused, and when a draw tells nothing."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.judge.checks.expected_answers import told_by
from weir.kernel_eval.judge.checks.tolerance import can_tell, compare
from weir.kernel_eval.tasks import rows
from weir.kernel_eval.tasks.reference import Reference

STEPS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        y = x
        for _ in range(STEPS):
            y = 3.9 * y * (1 - y)
        return y, x * 2
def get_inputs(): return [torch.rand(64, 64)]
def get_init_inputs(): return []
"""


def told(steps: int) -> set[int]:
    reference = Reference(STEPS.replace("STEPS", str(steps)), 5.0)
    model = reference.build([], 1)
    inputs = reference.inputs(3)
    return told_by(reference, model, inputs, reference.expected(model, inputs))


def test_a_chaotic_output_tells_nothing_and_the_one_beside_it_does() -> None:
    assert told(100) == {1}
    assert told(8) == {0, 1}


def test_some_rows_of_a_large_task_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MANY", 1 << 11)
    monkeypatch.setattr(rows, "_FEW", 1 << 9)
    assert told(100) == {1}
    assert told(8) == {0, 1}


def test_half_of_the_values_must_be_told_from_zeros() -> None:
    expected = torch.ones(100, 64, dtype=torch.float64)
    own = torch.zeros_like(expected)
    own[:49] = 0.2
    assert can_tell(expected, own)  # four times that is allowed: 0.8 of what the values are
    own[:51] = 0.2
    assert not can_tell(expected, own)
    assert can_tell(expected, own * 0.1)
    assert can_tell(torch.ones(3, dtype=torch.int64), torch.zeros(3))
    assert can_tell(torch.ones(0), torch.zeros(0))


def test_a_slice_of_zeros_has_the_scale_of_the_whole_and_other_slices_their_own() -> None:
    expected = torch.ones(64, 128)
    expected[3] = 0.0
    near, far = expected.clone(), expected.clone()
    near[3], far[3] = 5e-8, 5e-6
    assert compare(near, expected) is None
    assert compare(far, expected) is not None
