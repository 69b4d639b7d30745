"""Rows that are in order in each of a task's draws are so in each question: bounds, spans, the masks of padding."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import Draw, Variant, plan
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, rows):
        return FUNCTION

def get_inputs():
    return [torch.randn(24, 30), ROWS]
"""
KINDS = {
    "bounds": ("torch.searchsorted(rows, x)", "torch.randn(24, 5).sort(-1).values", False),
    "spans": ("x.sum(-1) + (rows[:, 1] - rows[:, 0])", "torch.randint(0, 31, (24, 2)).sort(-1).values", False),
    "padding behind": ("(x * rows).sum(-1)", "(torch.arange(30) < torch.randint(0, 31, (24, 1))).long()", True),
    "padding in front": ("(x * rows).sum(-1)", "torch.arange(30) >= torch.randint(0, 31, (24, 1))", False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_order_stay_so_in_each_question(kind: str) -> None:
    function, made, descends = KINDS[kind]
    reference = Reference(TASK.replace("FUNCTION", function).replace("ROWS", made), 30.0)
    model = reference.build([], 1)
    draws = [draw for draw in Draw if draw is not Draw.FADED]  # which is for inputs of one form
    for seed, variant in enumerate([*plan(5, frozenset(), 3), *map(Variant, draws)]):
        (_, rows), _, _ = reference.question(model, seed, variant)
        rows = rows.masked_fill(rows != rows, torch.inf) if rows.is_floating_point() else rows
        assert torch.equal(rows, rows.sort(-1, descending=descends).values), variant
