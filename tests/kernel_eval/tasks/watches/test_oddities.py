"""NaN that answers of integers do not show, and places below zero, are none of a task whose own draw has none."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import HARDEST, Draw, Variant
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.watches.oddities import Oddities

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return FUNCTION

def get_inputs():
    return [torch.rand(16, 64) + 0.01, torch.randn(16, 64)]
"""


def test_nan_is_noted_wherever_it_occurs() -> None:
    with Oddities() as none:
        torch.rand(4).log().argmax()
    with Oddities() as hidden:
        (-torch.ones(4)).log().argmax()
    assert (none.gives_nan, hidden.gives_nan) == (False, True)


def test_nan_of_memory_that_holds_anything_is_not_noted() -> None:
    held = torch.full((16,), torch.nan)
    with Oddities() as found:
        torch.empty(16).set_(held.untyped_storage(), 0, (16,)).clone()[2:].contiguous()
    assert not found.gives_nan


PLACES = ["y[0, (x * 63).long()]", "y[0].take((x * 63).long())", "y[0].index_put(((x * 63).long(),), y, True)"]


@pytest.mark.parametrize("function", PLACES)
def test_places_below_zero_are_noted_and_drawn_only_where_the_task_has_some(function: str) -> None:
    x, y = torch.rand(16, 64), torch.randn(16, 64)
    for shift, negative in ((0.0, False), (-0.5, True)):
        with Oddities() as found:
            eval(function, {"torch": torch, "x": x + shift, "y": y})
        assert found.counts_from_end == negative
    for given, least in (("torch.rand(16, 64)", 0.0), ("torch.rand(16, 64) - 0.5", -1.0)):
        task = TASK.replace("FUNCTION", function).replace("torch.rand(16, 64) + 0.01", given)
        reference = Reference(task, 30.0)
        model = reference.build([], 1)
        found_least = 0.0
        for seed, draw in enumerate((HARDEST, Variant(Draw.NEGATED), Variant(Draw.MILD), Variant(Draw.SIGNED))):
            (x, _), _, _ = reference.question(model, seed, draw)
            found_least = min(found_least, float((x * 63).long().min()))
        assert found_least == 0 if least == 0 else found_least < 0


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
