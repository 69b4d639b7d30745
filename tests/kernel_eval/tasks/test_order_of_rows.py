"""What a task's draws have is so in each question: rows in order, as bounds, spans and masks of padding; structure."""

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


STRUCTURES = {
    "a triangle": ("torch.randn(30, 30).tril()", lambda rows: torch.equal(rows, rows.tril())),
    "a band": ("torch.randn(30, 30).tril(3).triu(-3)", lambda rows: torch.equal(rows, rows.tril(3).triu(-3))),
    "symmetry": ("(lambda a: a + a.mT)(torch.randn(30, 30))", lambda rows: torch.equal(rows, rows.mT)),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_structure_stays_so_in_each_question(structure: str) -> None:
    made, holds = STRUCTURES[structure]
    reference = Reference(TASK.replace("FUNCTION", "x @ rows").replace("ROWS", made), 30.0)
    model = reference.build([], 1)
    draws = [draw for draw in Draw if draw not in (Draw.FADED, Draw.NANS, Draw.SPECIAL, Draw.INFINITE)]
    for seed, variant in enumerate([*plan(5, frozenset(), 3), *map(Variant, draws)]):
        (_, rows), _, _ = reference.question(model, seed, variant)
        assert holds(rows), variant


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
