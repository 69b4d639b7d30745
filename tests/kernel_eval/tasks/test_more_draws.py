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


def test_rows_that_some_draw_hides_are_hidden_in_all_of_a_call() -> None:
    reference = reference_of(MEAN, "torch.arange(32) < torch.randint(0, 33, (16, 1))")
    (_, m), _, _ = reference.question(reference.build([], 1), 1, Variant(Draw.HIDDEN))
    assert not bool(m.any())


LABELS = "torch.randint(0, 32, (16,)).masked_fill(torch.rand(16) < 0.3, -100)"
OF_LABELS = "(x.logsumexp(-1) - x.gather(-1, m.clamp(min=0)[:, None])[:, 0]).where(m != -100, 0.0).sum()"


@pytest.mark.parametrize(("guard", "is_left_out"), [(".clamp(min=1)", True), ("", False)])
def test_all_labels_are_left_out_in_one_call_if_the_task_has_an_answer_to_that(guard: str, is_left_out: bool) -> None:
    reference = reference_of(f"{OF_LABELS} / (m != -100).sum(){guard}", LABELS)
    model = reference.build([], 1)
    assert Draw.HIDDEN in reference.more_draws(model)
    (_, m), _, _ = reference.question(model, 1, Variant(Draw.HIDDEN))
    assert bool((m == -100).all()) == is_left_out


def test_what_a_mask_shows_in_each_draw_of_the_task_stays() -> None:
    reference = reference_of("(x * m).sum() / (m.sum() + 1)", "torch.arange(32) < torch.randint(1, 33, (16, 1))")
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


ROUTED = """
import torch

class Model(torch.nn.Module):
    def forward(self, scores, x):
        return FUNCTION

def get_inputs():
    return [INPUT, torch.randn(64, 16)]
"""
TO_EXPERTS = "torch.zeros(8, 16).index_add(0, scores.argmax(-1), x)"
TO_GROUPS = "torch.zeros(8, 16).index_add(0, scores, x)"


@pytest.mark.parametrize(
    ("function", "given"), [(TO_EXPERTS, "torch.randn(64, 8)"), (TO_GROUPS, "torch.randint(0, 8, (64,))")]
)
def test_nearly_all_rows_go_to_one_place_in_one_call(function: str, given: str) -> None:
    reference = Reference(ROUTED.replace("FUNCTION", function).replace("INPUT", given), 30.0)
    model = reference.build([], 1)
    assert Draw.CROWDED in reference.more_draws(model)
    for seed in range(5):
        (scores, _), _, drawn = reference.question(model, seed, Variant(Draw.CROWDED))
        places = scores.argmax(-1) if scores.is_floating_point() else scores
        assert drawn.draw is Draw.CROWDED
        assert int(places.bincount().max()) >= 62


@pytest.mark.parametrize("function", ["scores.argmax(-1)", "scores.softmax(-1)", "scores.amax(-1)"])
def test_tasks_that_send_nothing_to_a_place_get_no_crowd(function: str) -> None:
    reference = Reference(ROUTED.replace("FUNCTION", function).replace("INPUT", "torch.randn(64, 8)"), 30.0)
    assert Draw.CROWDED not in reference.more_draws(reference.build([], 1))


STEP = """
import torch

class Model(torch.nn.Module):
    def forward(self, p, m, v):
        return FUNCTION

def get_inputs():
    return [torch.randn(500), torch.randn(500), torch.rand(500)]
"""


def test_inputs_of_an_optimizer_are_nearly_zero_together_in_one_call() -> None:
    reference = reference_of_step("p - 0.01 * m / (v.sqrt() + 1e-8)")
    model = reference.build([], 1)
    assert reference.more_draws(model) == [Draw.FADED]
    for seed in range(5):
        (p, m, v), expected, drawn = reference.question(model, seed, Variant(Draw.FADED))
        assert drawn.draw is Draw.FADED
        size = float(expected.outputs[0].square().mean().sqrt())
        without = p - 0.01 * torch.where(v > 0, m / v.sqrt(), 0.0)
        assert float((without - expected.outputs[0]).abs().max()) > 0.1 * size
    other = reference_of_step("p - 0.01 * m * v")  # which nothing that is added to zero could change
    assert not other.more_draws(other.build([], 1))


def reference_of_step(function: str) -> Reference:
    return Reference(STEP.replace("FUNCTION", function), 30.0)


STRUCTURES = {
    "labels": ("x.sum(-1) / (m != 3).sum(-1).clamp(min=1)", "torch.randint(0, 8, (16, 32))", 3),
    "a bias of zeros": ("x.cumsum(-1) + m", "torch.zeros(32)", 0),
    "a mask of floats": ("(x * m).cumsum(-1)", f"({DRAWN}).float()", 0),
}


@pytest.mark.parametrize("what", STRUCTURES)
def test_one_call_has_other_masks_and_constants_beside_floats_of_usual_size(what: str) -> None:
    function, mask, hidden = STRUCTURES[what]
    reference = reference_of(function, mask)
    model = reference.build([], 1)
    assert Draw.STRUCTURED in reference.more_draws(model)
    for seed in range(5):
        (x, m), _, drawn = reference.question(model, seed, Variant(Draw.STRUCTURED))
        assert drawn.draw is Draw.STRUCTURED
        assert float(x.abs().max()) < 6
        if m.dim() > 1:
            assert bool((m == hidden).all(-1).any())
        else:
            assert bool(m.any())


def test_a_task_of_floats_alone_has_no_such_call() -> None:
    reference = reference_of("x.cumsum(-1) + m", "torch.randn(16, 32)")
    assert Draw.STRUCTURED not in reference.more_draws(reference.build([], 1))


COMPARED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, one, two):
        return FUNCTION

def get_inputs():
    return [torch.randn(16, 32), torch.randint(0, 32000, (16, 32)), torch.randint(0, 32000, (16, 32))]
"""


@pytest.mark.parametrize(
    ("function", "is_matched"),
    [
        ("(x * (one == two)).sum(1)", True),
        ("x * (one[:, :, None] == one[:, None]).sum(-1)", True),
        ("(x * (one == 7)).sum(1)", False),
        ("(x + one * two).sum(1)", False),
        ("x.new_zeros(16, 32000).scatter(1, one, x) * (one == two).any()", False),
    ],
)
def test_integers_that_are_compared_with_others_are_often_equal_to_them(function: str, is_matched: bool) -> None:
    reference = Reference(COMPARED.replace("FUNCTION", function), 30.0)
    model = reference.build([], 1)
    assert (Draw.MATCHED in reference.more_draws(model)) == is_matched
    if is_matched:
        (_, one, two), _, drawn = reference.question(model, 3, Variant(Draw.MATCHED))
        assert drawn.draw is Draw.MATCHED
        assert float((one == two).double().mean()) > 0.2


PLACED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return FUNCTION

def get_inputs():
    return INPUTS
"""


@pytest.mark.parametrize(
    ("function", "inputs", "is_placed"),
    [
        ("x.amax(-1, keepdim=True) - y", "[torch.randn(16, 200), torch.rand(16, 200)]", True),
        ("x.topk(4).values * y[:, :4]", "[torch.randn(16, 200), torch.rand(16, 200)]", True),
        ("x.amax(-1, keepdim=True)", "[torch.randn(16, 200), None]", False),
        ("x @ y.t()", "[torch.randn(16, 200), torch.rand(16, 200)]", False),
    ],
)
def test_extremes_lie_at_the_ends_of_rows_beside_other_inputs_of_usual_size(
    function: str, inputs: str, is_placed: bool
) -> None:
    reference = Reference(PLACED.replace("FUNCTION", function).replace("INPUTS", inputs), 30.0)
    model = reference.build([], 1)
    assert (Draw.PLACED in reference.more_draws(model)) == is_placed
    for seed in range(5 if is_placed else 0):
        (x, y), _, variant = reference.question(model, seed, Variant(Draw.PLACED))
        assert variant.draw is Draw.PLACED
        for value in (x, y):
            assert {0, 199} <= set(value.argmax(-1).tolist())
            assert float(value.abs().amax()) < 20


def test_groups_are_far_from_zero_where_the_largest_of_each_is_asked_for() -> None:
    largest = (
        "torch.full((32, 32), -torch.inf).scatter_reduce(0, m[:, None].expand_as(x), x, 'amax').nan_to_num(0, 0, 0)"
    )
    reference = reference_of(largest, "torch.randint(0, 8, (16,))")
    model = reference.build([], 1)
    assert Draw.GROUPED in reference.more_draws(model)
    (x, m), _, _ = reference.question(model, 1, Variant(Draw.GROUPED))
    assert min(float(x[m == group].max()) for group in torch.unique(m)) < -5e4
    gathers = reference_of("x[m]", "torch.randint(0, 8, (16,))")
    assert Draw.GROUPED not in gathers.more_draws(gathers.build([], 1))


def test_a_loop_over_steps_has_rows_in_order() -> None:
    best = "functools.reduce(torch.maximum, [m[:, k] - x[:, k - 1] for k in range(1, 32)])"
    reference = reference_of(best.replace("functools", "__import__('functools')"), "torch.randn(16, 32)")
    model = reference.build([], 1)
    (x, m), _, _ = reference.question(model, 1, Variant(Draw.PLACED))
    assert Draw.PLACED in reference.more_draws(model)
    assert bool((x.diff() <= 0).all(1).any()) and bool((m.diff() <= 0).all(1).any())


@pytest.mark.parametrize(("least", "is_hidden"), [(".clamp(min=1)", True), (" + 1", False)])
def test_places_that_own_draws_always_show_are_hidden_where_a_count_is_kept_from_zero(
    least: str, is_hidden: bool
) -> None:
    mean = f"(x * m.float()).sum(1) / (m.float().sum(1){least})"
    reference = reference_of(mean, "torch.arange(32) < torch.randint(1, 33, (16, 1))")
    for seed in range(4):
        (_, m), _, _ = reference.question(reference.build([], 1), seed, Variant(Draw.HIDDEN))
        assert bool(m.any()) is not is_hidden
