"""Inputs of trials: which variants an evaluation gets, how their values are drawn, and what the task may rely on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from weir.kernel_eval.tasks.input_draws import redrawn
from weir.kernel_eval.tasks.input_variants import (
    HARDEST,
    OF_OWN,
    PLAIN,
    SPECIAL,
    Draw,
    Variant,
    opinfo_sizes,
    other_sizes,
    plan,
)
from weir.kernel_eval.tasks.reference import Reference
from weir.kernel_eval.tasks.task_source import free_size, harder_than_mixed, undivided_size

NONE: frozenset[str] = frozenset()
SIZED = """
import torch
batch, features = 8, 64
class Model(torch.nn.Module):
    def forward(self, x): return FUNCTION
def get_inputs(): return [torch.rand(batch, features) + 1]
def get_init_inputs(): return [features]
"""


def sized(function: str, features: str = "[]") -> tuple[Reference, object]:
    """A task whose `batch` and, without the argument of Model, `features` only `get_inputs` reads; and its model."""
    reference = Reference(SIZED.replace("FUNCTION", function).replace("[features]", features), 5.0)
    return reference, reference.build([], 1)


def test_the_first_call_gets_inputs_as_they_are_and_the_others_in_any_order() -> None:
    for seed in range(5):
        variants = plan(5, NONE, seed)
        assert variants[0] == PLAIN
        draws = [variant.draw for variant in variants[1:]]
        assert Draw.MIXED in draws
        assert len(set(draws)) >= 3
        assert sum(variant.size_seed is not None for variant in variants) == 1
    assert len({tuple(plan(5, NONE, seed)) for seed in range(20)}) > 2


@pytest.mark.parametrize("num_calls", [1, 2, 3])
def test_few_calls_get_the_hardest_inputs_first(num_calls: int) -> None:
    draws = [variant.draw for variant in plan(num_calls, NONE, 3)]
    assert len(draws) == num_calls
    assert draws[0] is Draw.DECLARED
    assert num_calls == 1 or Draw.MIXED in draws


def test_a_task_can_keep_its_own_inputs_and_sizes() -> None:
    assert set(plan(4, frozenset({"varied_inputs", "varied_shapes"}), 1)) == {PLAIN}


@pytest.mark.parametrize("draw", Draw)
@pytest.mark.parametrize("shape", [(16, 1000), (9, 600), (1000,), (2, 3), (1, 1, 5, 5), (), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_draw_keeps_shape_strides_and_dtype(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    declared = torch.rand(shape, dtype=dtype)
    declared = declared.mT if declared.dim() >= 2 else declared
    (drawn,) = redrawn([declared], draw)
    assert (drawn.shape, drawn.stride(), drawn.dtype) == (declared.shape, declared.stride(), dtype)
    assert draw in SPECIAL or bool(torch.isfinite(drawn).all())
    few = declared.numel() < 2  # one value may be of the task's own draw
    keeps_floats = draw in OF_OWN
    assert torch.equal(drawn, declared) if keeps_floats else few or not torch.equal(drawn, declared)


def test_a_mixed_draw_needs_all_of_a_function() -> None:
    """Where the values of `torch.rand` need one piece of a function, a mixed draw needs the others."""
    torch.manual_seed(0)
    for shape in ((16, 1000), (9, 600), (3, 5000), (7000,), (2, 3, 32, 32)):
        (x,) = redrawn([torch.rand(shape)], Draw.MIXED)
        assert min(int((x < -6).sum()), int((x > 6).sum())) > 10
        assert int((x > 88).sum()) + int((x < -88).sum()) + int((x.abs() > 25).sum()) > 3
        slices = x.reshape(x.shape[0], -1) if x.shape[0] > 7 else None
        assert slices is None or bool(((slices - 1).abs().amax(1) < 0.2).any())  # products stay near one


@pytest.mark.parametrize("shape", [(16, 1000), (3, 2), (40,), (2, 1), (5, 3, 4)])
def test_no_row_of_a_wide_draw_is_of_small_values(shape: tuple[int, ...]) -> None:
    for _ in range(100):
        (x,) = redrawn([torch.rand(shape) + 0.5], Draw.WIDE)
        rows = x.view(len(x) if x.dim() > 1 else 1, -1)
        assert float(rows.amax()) > 89
        assert rows.shape[1] == 1 or bool((rows.amax(1) > 89).all() and (rows.amin(1) < -89).all())


KEPT: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], bool]]] = {
    "integers": (lambda: torch.randint(0, 9, (40,)), torch.equal),
    "booleans": (lambda: torch.rand(40) > 0.5, torch.equal),
    "labels": (lambda: torch.randint(0, 2, (400,)).float() * 2 - 1, torch.equal),
    "triangle": (
        lambda: torch.rand(20, 20).tril(),
        lambda new, old: torch.equal(new.tril(), new) and not torch.equal(new, old),
    ),
    "symmetry": (lambda: (lambda a: a + a.mT)(torch.rand(20, 20)), lambda new, _: torch.equal(new, new.mT)),
    "infinities": (
        lambda: torch.rand(64, 64).masked_fill(torch.rand(64, 64) > 0.9, -torch.inf),
        lambda new, old: torch.equal(new == -torch.inf, old == -torch.inf),
    ),
    "distributions": (
        lambda: torch.rand(8, 30).softmax(-1),
        lambda new, _: bool(((new.sum(-1) - 1).abs() < 1e-5).all()),
    ),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_draw_keeps_what_a_task_may_rely_on(kept: str) -> None:
    make, holds = KEPT[kept]
    declared = make()
    for draw in (Draw.MIXED, Draw.WIDE, Draw.SPARSE, Draw.NORMAL):
        (drawn,) = redrawn([declared], draw)
        assert holds(drawn, declared), draw


def test_tensors_in_lists_are_drawn_and_other_values_stay() -> None:
    declared = [[torch.rand(50), 3], 0.5, None, "x", (torch.rand(50),)]
    drawn = redrawn(declared, Draw.WIDE)
    assert (drawn[0][1], drawn[1:4], type(drawn[4])) == (3, [0.5, None, "x"], tuple)
    assert not torch.equal(drawn[0][0], declared[0][0])  # type: ignore[index]


def test_the_same_seed_gives_the_same_inputs() -> None:
    reference, model = sized("torch.relu(x)")
    one, two = (reference.question(model, 5, HARDEST)[0][0] for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, reference.question(model, 6, HARDEST)[0][0])


def test_a_size_can_be_changed_where_only_the_inputs_depend_on_it() -> None:
    assert free_size(SIZED, {"batch": 8, "features": 64}) == "batch"
    reference, model = sized("x.log()")
    sizes = set()
    for seed in range(8):
        inputs, expected, variant = reference.question(model, 1, Variant(size_seed=seed))
        assert inputs[0].shape == expected.outputs[0].shape == (8, variant.size.value)
        sizes.add(variant.size.value)
    assert sizes == {16, 32}
    assert reference.inputs(1)[0].shape == (8, 64)


def test_other_sizes_keep_the_divisibility_that_blocks_need() -> None:
    for size in (2, 6, 40, 64, 100, 1000, 4096):
        unit = size & -size
        for other in other_sizes(size, 3):
            assert 0 < other < size
            assert other % unit == 0 or (other & -other) == other
    assert len({tuple(other_sizes(40, seed)) for seed in range(8)}) > 2


@pytest.mark.parametrize("num_rows", [1, 3, 7])
def test_a_zero_is_not_the_largest_value_of_few_rows(num_rows: int) -> None:
    """Kernels that read a zero beside each row would be right where each has a value above zero."""
    reference = Reference(SIZED.replace("FUNCTION", "x.amax(-1)").replace("8, 64", f"{num_rows}, 64"), 5.0)
    model = reference.build([], 1)
    assert Draw.SIGNED in reference.more_draws(model)
    for seed in range(4):
        (more,) = (variant for variant in plan(5, NONE, seed, more=[Draw.SIGNED]) if variant.draw is Draw.SIGNED)
        inputs, expected, _ = reference.question(model, seed, more)
        assert bool((expected.outputs[0] < 0).any())
        assert bool(((inputs[0] > 0).all(-1) | (inputs[0] < 0).all(-1)).all())
    assert Draw.SIGNED not in {variant.draw for variant in plan(5, frozenset({"varied_inputs"}), 1, more=[Draw.SIGNED])}


WHOLE = {
    "x.amax()": [Draw.BELOW, Draw.ABOVE],
    "x / (x.norm() + 1e-6)": [Draw.VANISHING],
    "(x - x.min()) / (x.max() - x.min() + 1e-8)": [Draw.VANISHING, Draw.BELOW, Draw.ABOVE],
    "x.amax(-1) / x.norm(dim=-1)": [],
    "x.mean()": [],
}


@pytest.mark.parametrize("function", WHOLE)
def test_what_is_made_of_all_values_is_asked_for_all_of_one_kind(function: str) -> None:
    reference = Reference(SIZED.replace("FUNCTION", function).replace("8, 64", "16, 64"), 5.0)
    model = reference.build([], 1)
    assert reference.more_draws(model) == WHOLE[function]
    for draw in WHOLE[function]:
        inputs, _, variant = reference.question(model, 1, Variant(draw))
        assert variant.draw is draw
        is_so = {
            Draw.BELOW: float(inputs[0].max()) < 0,
            Draw.ABOVE: float(inputs[0].min()) > 0,
            Draw.VANISHING: 0 < float(inputs[0].abs().max()) < 1e-9,
        }
        assert is_so[draw]


def test_one_more_call_has_a_size_of_torchs_own_tests() -> None:
    for relaxed, draw in ((NONE, Draw.MIXED), (frozenset({"varied_inputs"}), Draw.DECLARED)):
        (more,) = (variant for variant in plan(5, relaxed, 3, any_size=True) if variant.any_size)
        assert len(plan(5, relaxed, 3, any_size=True)) == 6
        assert (more.draw, more.size_seed is None) == (draw, False)
    assert len(plan(5, frozenset({"varied_shapes"}), 3, any_size=True)) == 5
    for size in (4, 5, 100, 1001):
        found = {other for seed in range(60) for other in opinfo_sizes(size, seed)}
        assert found >= {1, 3, size - 1} - {size}
        assert min(found) > 0 and max(found) < size and any(other % 2 for other in found)


@pytest.mark.parametrize(
    ("function", "shape", "taken"),
    [
        ("x.softmax(-1)", (8, 100), True),  # one operator
        ("x.tanh() * x.sigmoid()", (8, 100), True),  # works value by value
        ("x.softmax(-1) * 2", (8, 100), False),
        ("x.softmax(-1)", (8, 64), False),  # kernels may have blocks of 64, without a mask
        ("x.tanh()", (512, 100), False),  # and of 512 over all elements
        ("x.tanh()", (30, 512), False),
        ("x.tanh()", (31, 512), True),  # these divide any number of rows
    ],
)
def test_any_size_is_taken_where_a_kernel_needs_a_mask_anyhow(
    function: str, shape: tuple[int, int], taken: bool
) -> None:
    source = SIZED.replace("FUNCTION", function).replace("8, 64", f"{shape[0]}, {shape[1]}")
    reference = Reference(source.replace("[features]", "[]"), 5.0)
    model = reference.build([], 1)
    assert reference.takes_any_size(model) is taken
    if taken:
        sizes = {
            reference.question(model, seed, Variant(Draw.MIXED, seed, any_size=True))[1].outputs[0].shape
            for seed in range(8)
        }
        assert any(rows % 2 or columns % 2 for rows, columns in sizes)
        assert shape not in sizes


def test_a_size_that_a_task_refuses_is_not_taken() -> None:
    assert undivided_size(SIZED, {"batch": 100, "features": 64}) == "batch"
    assert undivided_size(SIZED, {"batch": 32, "features": 64}) is None
    source = SIZED.replace("FUNCTION", "x.unflatten(1, (-1, 20)).amax(-1)").replace("8, 64", "8, 100")
    reference = Reference(source.replace("[features]", "[]"), 5.0)
    model = reference.build([], 1)
    for seed in range(8):
        inputs, _, variant = reference.question(model, seed, Variant(Draw.MIXED, seed, any_size=True))
        assert inputs[0].shape[1] in (20, 100)
        assert variant.size is None or variant.size.value == 20


def test_inputs_have_no_signs_where_the_task_has_no_finite_answer_to_mixed_ones() -> None:
    reference, model = sized("x.log().cummax(-1).values")
    inputs, expected, variant = reference.question(model, 1, HARDEST)
    assert variant.draw is Draw.HARD  # without signs, since values below zero have no logarithm
    assert bool((inputs[0] >= 0).all())  # of a zero the logarithm is the least, which no maximum is
    assert float(inputs[0].max()) > 30
    assert float(inputs[0].min()) < 0.01
    assert bool(torch.isfinite(expected.outputs[0]).all())


def test_a_task_that_takes_only_its_own_inputs_gets_them() -> None:
    reference, model = sized("x if (x > 1).all() and (x < 2).all() and x.shape == (8, 64) else fails")
    inputs, _, variant = reference.question(model, 1, Variant(Draw.WIDE, size_seed=1))
    assert variant == PLAIN
    assert torch.equal(inputs[0], reference.inputs(1)[0])


def test_a_task_that_answers_with_infinities_gets_other_draws_too() -> None:
    source = SIZED.replace("FUNCTION", "x.log().flip(0)").replace(
        "torch.rand(batch, features) + 1", "torch.randn(8, 64)"
    )
    reference = Reference(source, 5.0)
    inputs, expected, variant = reference.question(reference.build([], 1), 1, HARDEST)
    assert variant.draw is Draw.HARD
    assert torch.equal(expected.outputs[0].flip(0).isnan(), inputs[0] < 0)
    assert torch.equal(expected.outputs[0].flip(0).isinf(), inputs[0] == 0)


def test_values_between_zero_and_one_are_drawn_where_nothing_else_has_an_answer() -> None:
    reference, model = sized("torch.logit(x - 1) if x.max() > 1 else torch.logit(x).flip(0)")
    inputs, expected, variant = reference.question(model, 1, HARDEST)
    assert variant.draw is Draw.UNIT
    assert float(inputs[0].min()) < 0.02 < 0.98 < float(inputs[0].max()) < 1
    assert bool(torch.isfinite(expected.outputs[0]).all())


HARDER = {
    "x.clamp(-1000.0, 1000.0)": Draw.EDGES,
    "torch.relu(x)": Draw.EDGES,
    "1 / x": Draw.EDGES,
    "x.clamp(-1000.0, 1000.0).flip(0)": Draw.BEYOND,
    "torch.where(x == 0, 7.0, x).flip(0)": Draw.BEYOND,
    "torch.relu(x).flip(0)": Draw.HARD,
    "x.softmax(-1)": Draw.POINTS,
    "torch.histc(x, 8, 0.0, 1.0)": Draw.HARD,  # a rounding of a point between two bins decides where it counts
    "x.exp().flip(0)": Draw.MILD,  # huge and wide values overflow
    "(1 / x).flip(0)": Draw.MIXED,  # and zeros have no inverse
    "x.sort().values": Draw.MIXED,  # whose equal values are in any order
    "x.max(-1).indices": Draw.MIXED,
    "(x > 0)": Draw.EDGES,
    "x.asin().flip(0) if x.max() <= 1 else (x - 1).asin()": Draw.UNIT,
    "torch.nan_to_num(x, 0.0, 1e4, -1e4)": Draw.SPECIAL,
    "torch.where(torch.isnan(x), 0.0, x)": Draw.NANS,  # infinities are no answer that can be compared
    "torch.where(torch.isinf(x), 0.0, x)": Draw.INFINITE,
}


@pytest.mark.parametrize("function", HARDER)
def test_a_mixed_draw_is_as_hard_as_the_task_allows(function: str) -> None:
    reference, model = sized(function)
    (x,), expected, variant = reference.question(model, 6, HARDEST)
    assert variant.draw is HARDER[function]
    assert bool(torch.isfinite(expected.outputs[0]).all())
    assert bool((x[x.isfinite()].abs() > 1000).any()) == (variant.draw in (Draw.BEYOND, Draw.EDGES))
    zeros = function not in ("1 / x", "(1 / x).flip(0)")  # of sorts, too: rows of zeros
    assert bool((x == 0).any()) == zeros
    if variant.draw is Draw.SPECIAL:
        assert bool(x.isnan().any())
        assert bool(x.isinf().any())


def test_an_overflow_is_no_answer_that_others_must_have() -> None:
    source = SIZED.replace("FUNCTION", "x.exp() / x.exp().floor()").replace(
        "torch.rand(batch, features) + 1", "torch.randn(8, 64)"
    )
    reference = Reference(source, 5.0)
    model = reference.build([], 1)
    _, expected, variant = reference.question(model, 1, Variant(Draw.WIDE))
    assert variant.draw is not Draw.WIDE
    assert bool(expected.outputs[0].isinf().any())  # below zero the floor is 0
    assert not bool(expected.outputs[0].isnan().any())


EDGES = {
    "torch.sin(x)": (0.5, 1.0, 3.1415927410125732, 501.0),
    "x.sqrt()": (0.0, 1.1920928955078125e-07, 1.0, 501.0),
    "x.log()": (1.1920928955078125e-07, 0.9999998807907104, 1.0, 501.0),
    "(x / 4).asin()": (-1.0, 0.0, 1.0),
    "torch.nn.functional.hardtanh(x, -2.5, 2.75)": (-2.5, 2.75, 2.750000238418579, 501.0),
}


@pytest.mark.parametrize("function", EDGES)
def test_a_function_that_works_value_by_value_gets_the_points_where_it_turns(function: str) -> None:
    reference, model = sized(function)
    values = set[float]()
    for seed in range(6):
        (x,), expected, variant = reference.question(model, seed, Variant(Draw.MIXED))
        assert variant.draw is Draw.EDGES
        assert bool(torch.isfinite(expected.outputs[0]).all())
        values |= set(x.flatten().tolist())
    assert values >= set(EDGES[function])


@pytest.mark.parametrize("function", ["x.cumsum(-1)", "x.softmax(-1)", "x.norm(dim=-1)", "x @ x.mT"])
def test_a_task_that_is_one_operator_gets_the_points_of_torchs_own_tests(function: str) -> None:
    reference, model = sized(function)
    (x,), _, variant = reference.question(model, 2, HARDEST)
    assert variant.draw is Draw.POINTS
    assert set(x.flatten().tolist()) & {3.1415927410125732, 1.5707963705062866, 0.0010000000474974513, 0.25}
    reference, model = sized(f"({function}) * 2")
    assert reference.question(model, 2, HARDEST)[2].draw is Draw.HARD


def test_no_edge_point_is_where_a_rounding_decides() -> None:
    reference, model = sized("x.tan()")
    (x,), expected, variant = reference.question(model, 1, Variant(Draw.MIXED))
    assert variant.draw is Draw.EDGES
    assert not bool(((x.abs() - torch.pi / 2).abs() < 1e-6).any())
    assert float(expected.outputs[0].abs().max()) < 1e5


@pytest.mark.parametrize(
    ("asked", "specials"),
    [
        ("torch.isnan(x)", SPECIAL),
        ("x != x", SPECIAL),
        ("x.ne(x)", SPECIAL),
        ("torch.eq(x, x)", SPECIAL),
        ("x == float('inf')", (Draw.INFINITE,)),
        ("torch.where(torch.isinf(x), y, x)", (Draw.INFINITE,)),
        ("x.abs() == torch.inf", (Draw.INFINITE,)),
        ("-math.inf == x", (Draw.INFINITE,)),
        ("x == y", ()),
        ("torch.eq(x, y)", ()),
        ("x == 7.0", ()),
        ("x.masked_fill(mask, float('-inf'))", ()),
        ("infer(x) > info.min", ()),
    ],
)
def test_special_values_are_drawn_for_tasks_that_ask_for_them_by_name_or_not(
    asked: str, specials: tuple[Draw, ...]
) -> None:
    source = f"def forward(self, x, y):\n    return {asked}\n"
    assert tuple(draw for draw in harder_than_mixed(source) if draw in SPECIAL) == specials


@pytest.mark.parametrize("draw", SPECIAL)
def test_half_of_the_rows_hold_no_special_value_and_the_others_hold_each(draw: Draw) -> None:
    (changed,) = redrawn([torch.randn(8, 64)], draw)
    is_free = torch.isfinite(changed).all(-1)
    assert int(is_free.sum()) >= 4
    assert bool(changed.isnan().any()) == (draw is not Draw.INFINITE)
    assert bool((changed == -torch.inf).any()) == (draw is not Draw.NANS)


def test_labels_stay_what_they_are_where_all_else_is_negated() -> None:
    labels = (torch.rand(64, 80) < 0.2).float()
    x, kept = redrawn([torch.rand(64, 80), labels], Draw.NEGATED)
    assert bool((x <= 0).all())
    assert torch.equal(kept, labels)


def test_inputs_that_must_be_negative_are_far_below_zero_in_the_mixed_draw_alone() -> None:
    source = SIZED.replace("FUNCTION", "torch.log1p(-torch.exp(x)).cumsum(-1)").replace(
        "features) + 1", "features) - 1.1"
    )
    reference = Reference(source.replace("[features]", "[]"), 5.0)
    model = reference.build([], 1)
    inputs, _, variant = reference.question(model, 1, HARDEST)
    assert variant.draw is Draw.NEGATIVE
    assert float(inputs[0].min()) < -30
    assert bool((inputs[0] <= 0).all())
    _, _, other = reference.question(model, 1, Variant(Draw.WIDE))
    assert other.draw is Draw.SCALED
