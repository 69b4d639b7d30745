"""Whether a task only moves data."""

from __future__ import annotations

import pytest

from weir.kernel_eval.judge.checks.reference_operators import only_moves
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return {forward}
def get_inputs(): return [torch.randn(4, 6)]
"""
MOVES = [
    "x.t().contiguous()",
    "torch.cat([x, x.flip(0)])",
    "x.half()",
    "x[:, 1:].clone()",
    "x.to('cuda').unfold(1, 2, 2)",
]
COMPUTES = ["x * 2", "x.to(torch.float8_e4m3fn).float()", "(x > 0)", "x.long()", "torch.relu(x.t())", "x.sum()"]


@pytest.mark.parametrize("forward", [*MOVES, *COMPUTES])
def test_a_task_that_computes_nothing_is_told_by_its_operators(forward: str) -> None:
    reference = Reference(TASK.replace("{forward}", forward), 10.0)
    model = reference.build([], 1)
    assert only_moves(reference, model, reference.inputs(1)) == (forward in MOVES)
    assert only_moves(reference, None, []) == (forward in MOVES), "it is found out once"
