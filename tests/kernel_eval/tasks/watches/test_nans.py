"""NaN that answers of integers do not show."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import HARDEST, Draw, Variant
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.watches.nans import Nans

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return FUNCTION

def get_inputs():
    return [torch.rand(16, 64) + 0.01, torch.randn(16, 64)]
"""


def test_nan_is_noted_wherever_it_occurs() -> None:
    with Nans() as none:
        torch.rand(4).log().argmax()
    with Nans() as hidden:
        (-torch.ones(4)).log().argmax()
    assert (none.occur, hidden.occur) == (False, True)


def test_nan_of_memory_that_holds_anything_is_not_noted() -> None:
    held = torch.full((16,), torch.nan)
    with Nans() as nans:
        torch.empty(16).set_(held.untyped_storage(), 0, (16,)).clone()[2:].contiguous()
    assert not nans.occur


@pytest.mark.parametrize("function", ["(x.log() + y).argmax(-1)", "torch.floor(x.log2()).int()"])
def test_inputs_of_which_only_hidden_nan_comes_are_none_of_a_tasks(function: str) -> None:
    reference = Reference(TASK.replace("FUNCTION", function), 30.0)
    model = reference.build([], 1)
    for draw in (HARDEST, Variant(Draw.WIDE), Variant(Draw.NEGATED), Variant(Draw.SPARSE)):
        (x, _), _, _ = reference.question(model, 3, draw)
        assert bool((x >= 0).all())


def test_a_task_that_names_special_values_gets_nan_in_one_of_several_inputs() -> None:
    reference = Reference(TASK.replace("FUNCTION", "torch.where(torch.isnan(x), y, x * y)"), 30.0)
    (x, y), expected, _ = reference.question(reference.build([], 1), 3, HARDEST)
    assert bool(x.isnan().any())
    assert not bool(y.isnan().any())
    assert bool(torch.isfinite(expected.outputs[0]).all())
