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
    "x.tril()",
    "torch.diag_embed(x[0])",
    "torch.where(torch.arange(6) > 2, x, 0.0)",
    "(x.view(torch.int32).long() >> 16 & 0xffff)",
    "torch.stack([x.view(torch.int32)[0] & 0xff, x.view(torch.int32)[1] & 0xff00]) | 0x1000000",
]
COMPUTES = [
    *("x * 2", "x.to(torch.float8_e4m3fn).float()", "(x > 0)", "x.long()", "torch.relu(x.t())", "x.sum()", "x.abs()"),
    *("x.sort(0).values", "torch.cat([x[:2], x[2:] + 1])", "x.view(torch.int32) + 1", "x.view(torch.int32) >> 3"),
    *("torch.where(x > 0, x, 0.0)", "x.round()", "(x > 0).long()", "x.max(0).values"),
]


@pytest.mark.parametrize("forward", [*MOVES, *COMPUTES])
def test_a_task_that_computes_nothing_is_recognised_by_its_operators_or_answers(forward: str) -> None:
    reference = Reference(TASK.replace("{forward}", forward), 10.0)
    model = reference.build([], 1)
    assert only_moves(reference, model, reference.inputs(1)) == (forward in MOVES)
    assert only_moves(reference, None, []) == (forward in MOVES), "it is found out once"
