"""Calls besides the planned ones, whose masks or values are of one kind: which tasks get them, and what they hold."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import OF_MASKS, Draw, Variant
from weir.kernel_eval.tasks.reference import Reference

OF_ONE_SIGN = {Draw.BELOW, Draw.ABOVE}
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, m):
        return FUNCTION

def get_inputs():
    return [torch.randn(16, 32), MASK]
"""
DRAWN = "torch.rand(16, 32) < 0.5"
MEAN = "(x * m).sum() / m.sum().clamp(min=1)"


def reference_of(function: str, mask: str) -> Reference:
    return Reference(TASK.replace("FUNCTION", function).replace("MASK", mask), 30.0)


@pytest.mark.parametrize("mask", [DRAWN, f"({DRAWN}).float()", f"({DRAWN}).long()", "torch.rand(32) < 0.5"])
def test_a_mask_is_false_as_a_whole_in_one_call_and_true_in_another(mask: str) -> None:
    reference = reference_of(MEAN, mask)
    model = reference.build([], 1)
    assert [draw for draw in reference.more_draws(model) if draw in OF_MASKS] == [Draw.HIDDEN, Draw.SHOWN]
    for seed in range(5):
        (_, hidden), expected, _ = reference.question(model, seed, Variant(Draw.HIDDEN))
        assert not bool(hidden.any())
        assert float(expected.outputs[0]) == 0
        (x, shown), expected, _ = reference.question(model, seed, Variant(Draw.SHOWN))
        assert bool(shown.all())
        assert float(expected.outputs[0]) == pytest.approx(float(x.sum() / shown.sum()), abs=1e-5)


def test_a_task_that_has_no_answer_where_all_is_hidden_is_not_asked_for_it() -> None:
    reference = reference_of("(x * m).sum() / m.sum()", DRAWN)
    (_, m), expected, _ = reference.question(reference.build([], 1), 1, Variant(Draw.HIDDEN))
    assert bool(m.any())
    assert bool(torch.isfinite(expected.outputs[0]))


@pytest.mark.parametrize(
    ("function", "mask"),
    [
        ("x * m", DRAWN),  # value by value
        (MEAN, "torch.ones(16, 32).tril().bool()"),  # the same in each draw
        (MEAN, "torch.rand(16, 32).argsort(-1) < 8"),  # of which each row shows as many
        (MEAN, "torch.randint(0, 3, (16, 32))"),
        (MEAN, "torch.rand(16, 32)"),
    ],
)
def test_other_tasks_get_no_such_calls(function: str, mask: str) -> None:
    reference = reference_of(function, mask)
    assert not set(reference.more_draws(reference.build([], 1))) & set(OF_MASKS)


def test_what_a_mask_shows_in_each_draw_of_the_task_stays() -> None:
    reference = reference_of(MEAN, "torch.arange(32) < torch.randint(1, 33, (16, 1))")
    (_, m), _, _ = reference.question(reference.build([], 1), 1, Variant(Draw.HIDDEN))
    assert bool(m[:, 0].all())
    assert not bool(m[:, 16:].any())


IMAGES = TASK.replace("16, 32", "4, 3, 8, 8").replace("MASK", "0")


@pytest.mark.parametrize(
    ("function", "joins"),
    [
        ("x.amax((0, 2, 3))", True),
        ("x.flatten(1).amin(-1)", True),
        ("x.amin((1, 2, 3))", True),
        ("torch.nn.functional.adaptive_max_pool2d(x, 1)", True),
        ("(x > 0).flatten(2).any(-1)", True),
        ("(x > 0).any(-1).any(-1)", False),
        ("torch.nn.functional.max_pool2d(x, 2)", False),
        ("x.amax(-1)", False),
        ("x.mean((0, 2, 3))", False),
    ],
)
def test_all_values_are_of_one_sign_where_an_extreme_joins_rows(function: str, joins: bool) -> None:
    reference = Reference(IMAGES.replace("FUNCTION", function), 30.0)
    model = reference.build([], 1)
    assert set(reference.more_draws(model)) & OF_ONE_SIGN == (OF_ONE_SIGN if joins else set())
