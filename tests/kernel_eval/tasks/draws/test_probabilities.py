"""Rows of probabilities at their ends: sure of one place, even, equal to those of another input."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.probabilities import with_equal_rows, with_sure_rows
from weir.kernel_eval.tasks.input_variants import Draw, Variant
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, p, q):
        return FUNCTION

def get_inputs():
    return [torch.softmax(torch.randn(16, 32), -1), torch.softmax(torch.randn(16, 32), -1)]
"""


def test_some_rows_are_sure_of_one_place_some_nearly_and_some_are_even() -> None:
    torch.manual_seed(1)
    changed = with_sure_rows(torch.softmax(torch.randn(4, 8, 16), -1))
    assert torch.allclose(changed.sum(-1), torch.ones(4, 8))
    assert (int((changed == 1).any(-1).sum()), int((changed == 1 / 16).all(-1).sum())) == (4, 4)
    assert int(((changed > 0.97) & (changed < 1)).any(-1).sum()) == 4


def test_one_row_stays() -> None:
    row = torch.softmax(torch.randn(1, 16), -1)
    assert with_sure_rows(row) is row


def test_some_rows_are_those_of_the_first() -> None:
    torch.manual_seed(1)
    given = [torch.rand(16, 4) for _ in range(2)]
    one, two = with_equal_rows(given)
    assert one is given[0]
    assert int((one == two).all(-1).sum()) == 2


@pytest.mark.parametrize(
    ("function", "has_equal"),
    [
        ("torch.where((p - q).relu().sum(-1) > 0, p.amax(-1), q.amin(-1))", True),
        ("1 / (p - q).abs().sum(-1)", False),  # which would be infinite
    ],
)
def test_rows_of_two_inputs_are_equal_if_the_task_has_an_answer_to_them(function: str, has_equal: bool) -> None:
    reference = Reference(TASK.replace("FUNCTION", function), 30.0)
    model = reference.build([], 1)
    assert Draw.SURE in reference.more_draws(model)
    (p, q), _, drawn = reference.question(model, 3, Variant(Draw.SURE))
    assert drawn.draw is Draw.SURE
    assert bool((p == q).all(-1).any()) == has_equal
    assert bool((p == 1).any())
