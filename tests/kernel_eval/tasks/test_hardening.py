"""What inputs get beyond their draw: each input its own hardest draw, ends of ranges, thresholds, other integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from weir.kernel_eval.tasks.input_variants import HARDEST, Draw, Variant
from weir.kernel_eval.tasks.reference import Reference

TASK = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return FUNCTION

def get_inputs():
    return [INPUTS]
"""
FLOATS = "torch.rand(64, 128), torch.rand(64, 128)"
ROWS = "torch.rand(64, 128).softmax(-1), torch.randn(64, 128)"
INTEGERS = "torch.randint(0, 50, (64, 128)), torch.randint(0, 50, (64, 128))"
Holds = Callable[[Any, Any], bool]


def has_zero_row(x: torch.Tensor) -> bool:
    return bool((x == 0).all(-1).any())


ADDED: dict[str, tuple[str, str, Holds]] = {
    "only one input must be positive": (
        "x.log() + y.cumsum(-1)",
        FLOATS,
        lambda x, y: bool((x > 0).all()) and float(y.min()) < -6,
    ),
    "places of a permutation that repeat where they are added to": (
        "x.index_add(0, y, x) + x[y]",
        "torch.rand(64, 8), torch.randperm(64)",
        lambda x, y: len(set(y.tolist())) < 64,
    ),
    "places of a permutation where any of several may stay": (
        "x.index_add(0, y, x).index_copy(0, y, x)",
        "torch.rand(64, 8), torch.randperm(64)",
        lambda x, y: len(set(y.tolist())) == 64,
    ),
    "rows of zeros": ("F.normalize(x) + y.cumsum(-1)", FLOATS, lambda x, y: has_zero_row(x) and has_zero_row(y)),
    "no rows of zeros": ("x / x.norm(dim=-1, keepdim=True) + y", FLOATS, lambda x, y: not has_zero_row(x)),
    "rows of zeros where any of equal values is right": (
        "x.sort(-1).values + y",
        FLOATS,
        lambda x, y: bool((x == 0).all(-1).any()),
    ),
    "ends of probabilities": (
        "F.binary_cross_entropy(x, y, reduction='none')",
        FLOATS,
        lambda x, y: {0.0, 1.0} <= set(x.flatten().tolist()) & set(y.flatten().tolist()),
    ),
    "zeros among probabilities": (
        "F.kl_div(y, x, reduction='none').cumsum(-1)",
        ROWS,
        lambda x, y: bool((x == 0).any()) and bool(((x.sum(-1) - 1).abs() < 1e-5).all()),
    ),
    "far thresholds": (
        "torch.where(x > 1e6, 0.0, x).cumsum(-1) + y",
        FLOATS,
        lambda x, y: float(x.max()) > 1e6,
    ),
    "values that are asked for": (
        "x.masked_fill(x == 7.5, -1e4).softmax(-1) + y",
        FLOATS,
        lambda x, y: bool((x == 7.5).any()),
    ),
    "integers that are computed with": (
        "x * 3 + y.abs()",
        INTEGERS,
        lambda x, y: int(x.min()) < 0 and int(x.max()) > 50 and int(y.min()) < 0,
    ),
    "sums of integers": (
        "x.sum(-1) + y.amax(-1)",
        INTEGERS,
        lambda x, y: int(x.sum(-1).max()) > 2**16 and int(x.abs().sum()) < 2**31 and bool((y <= 0).all(-1).any()),
    ),
    "integers that are compared with positions": (
        "x * (torch.arange(128) < y[:, None]).float() / y[:, None].clamp(min=1)",
        "torch.randn(64, 128), torch.randint(1, 129, (64,))",
        lambda x, y: int(y.min()) >= 0 and int(y.max()) <= 128,
    ),
    "integers that choose a number": (
        "((y == 0).float() * 2 + (y == 1).float() * 3) * x",
        "torch.randn(64, 128), torch.randint(0, 2, (64, 128))",
        lambda x, y: set(y.unique().tolist()) == {0, 1},
    ),
    "integers beside the number that an order asks for": (
        "x + (y > 100).float().cumsum(-1)",
        "torch.randn(64, 128), torch.randint(0, 50, (64, 128))",
        lambda x, y: bool((y == 101).any()) and int(y.max()) == 101,
    ),
    "counts of shifts": (
        "(x << y).cumsum(-1)",
        "torch.randint(0, 50, (64, 128), dtype=torch.int32), torch.randint(0, 8, (64, 128), dtype=torch.int32)",
        lambda x, y: int(y.min()) == 0 and int(y.max()) == 31 and int(x.max()) > 50,
    ),
    "integers that say where": (
        "x.gather(1, y)",
        INTEGERS,
        lambda x, y: int(y.min()) >= 0 and int(y.max()) < 50,
    ),
    "divisors": (
        "x // y",
        "torch.randint(0, 1000, (64, 128)), torch.randint(1, 9, (64, 128))",
        lambda x, y: int(y.min()) < 0 and bool((y != 0).all()),
    ),
    "integers that are compared with one number": (
        "x + (y != 255).float().cumsum(-1)",
        "torch.randn(64, 128), torch.randint(0, 50, (64, 128))",
        lambda x, y: bool((y == 255).any()) and bool((y < 50).any()),
    ),
    "equal values where none is chosen by its place": (
        "x.topk(4).values + y.sum(-1, keepdim=True)",
        "torch.randn(64, 128), torch.randn(64, 128)",
        lambda x, y: len(x[0].unique()) < 128,
    ),
    "no equal values where one is chosen by its place": (
        "x.topk(4).indices + y[:, :4]",
        "torch.randn(64, 128), torch.randn(64, 128)",
        lambda x, y: all(len(row.unique()) == 128 for row in x),
    ),
    "values that two inputs share": (
        "torch.where(x >= y, x, 2 * y).cumsum(-1)",
        "torch.randn(64, 128), torch.randn(64, 128)",
        lambda x, y: bool((x == y).any(-1).any()),
    ),
    "a mask that hides something": (
        "x.masked_fill(~y, 0.0)",
        "torch.randn(64, 128), torch.ones(64, 128, dtype=torch.bool)",
        lambda x, y: 0 < int((~y).sum()) < y.numel() / 2,
    ),
    "a first state": ("(x + y).cumsum(-1)", "torch.randn(64, 128), torch.zeros(64, 128)", lambda x, y: y.std() > 0.4),
    "a first state that is larger than what comes": (
        "torch.maximum(y, x.amax(0)).cumsum(-1)",
        "torch.randn(64, 128), torch.zeros(128)",
        lambda x, y: bool((y > x.amax(0)).any()) and bool((y < x.amin(0)).any()),
    ),
    "weights of one": (
        "x / y.sum(-1, keepdim=True)",
        "torch.randn(64, 128), torch.ones(64, 128)",
        lambda x, y: set(y.unique().tolist()) == {0.0, 1.0},
    ),
    "divisors of one": ("x / y", "torch.randn(64, 128), torch.ones(64, 128)", lambda x, y: 0.4 < float(y.min()) < 1),
    "lengths": (
        "x * (torch.arange(128) < y[:, None]).float()",
        "torch.randn(64, 128), torch.full((64,), 128)",
        lambda x, y: int(y.max()) == 128 and 0 < int(y.min()) < 128,
    ),
    "bounds in order": (
        "torch.bucketize(x, y)",
        "torch.randn(64, 128), torch.randn(32).sort().values",
        lambda x, y: bool((y[1:] >= y[:-1]).all()),
    ),
    "rows of one boolean": (
        "(x * y).cumsum(-1)",
        "torch.randn(64, 128), torch.rand(64, 128) < 0.5",
        lambda x, y: bool(y.all(-1).any()) and bool((~y).all(-1).any()),
    ),
    "rows in which one element alone is not as the others": (
        "x.any(-1) & y.all(-1)",
        "torch.rand(64, 128) > 0.5, torch.rand(64, 128) > 0.5",
        lambda x, y: all(
            bool((part.sum(-1) == number).any() and (part[part.sum(-1) == number].int().argsort(-1)[:, at] >= 96).any())
            for part in (x, y)
            for number, at in ((1, -1), (127, 0))
        ),
    ),
    "rows of one value in a mask of floats": (
        "(x * y).cumsum(-1)",
        "torch.randn(64, 128), (torch.rand(64, 128) < 0.5).float()",
        lambda x, y: bool((y == 1).all(-1).any()) and bool((y == 0).all(-1).any()),
    ),
    "rows of one integer, within the range where it is a position": (
        "x.gather(1, y)",
        INTEGERS,
        lambda x, y: bool((y == y.amin()).all(-1).any()) and int(y.min()) >= 0 and int(y.max()) < 50,
    ),
    "masks that are the same in each draw": (
        "x.masked_fill(~y, -1e9).softmax(-1)",
        "torch.randn(64, 64), torch.ones(64, 64).tril().bool()",
        lambda x, y: 0 < int((y != torch.ones(64, 64).tril().bool()).sum()) < 1024,
    ),
    "an order that is the same in each draw": (
        "x[y] * 2",
        "torch.randn(64, 128), torch.arange(63, -1, -1)",
        lambda x, y: sorted(y.tolist()) == list(range(64)) and y.tolist() != list(range(63, -1, -1)),
    ),
    "positions that are the same in each draw": (
        "x * torch.cos(y[:, None] * 0.01)",
        "torch.randn(64, 128), torch.arange(64)",
        lambda x, y: int(y[0]) == 0 and int(y[-1]) == 63 and y.tolist() != list(range(64)),
    ),
    "bounds of pieces stay": (
        "torch.stack([x[int(y[i]) : int(y[i + 1])].sum(0) for i in range(4)])",
        "torch.randn(64, 128), torch.tensor([0, 16, 32, 48, 64])",
        lambda x, y: y.tolist() == [0, 16, 32, 48, 64],
    ),
    "tiny rows": (
        "F.normalize(x, dim=-1, eps=0.01) + y",
        "torch.randn(64, 128), torch.randn(64, 128)",
        lambda x, y: bool(((x.norm(dim=-1) > 0) & (x.norm(dim=-1) < 0.02)).any()),
    ),
    "a tiny row of few": (
        "F.normalize(x, dim=-1, eps=0.01) + y",
        "torch.randn(5, 128), torch.randn(5, 128)",
        lambda x, y: bool(((x.norm(dim=-1) > 0) & (x.norm(dim=-1) < 0.02)).any()),
    ),
    "rows of one sign": (
        "x.amax(-1) + y.amin(-1)",
        "torch.randn(64, 128), torch.randn(64, 128)",
        lambda x, y: all(bool((part < 0).all(-1).any()) and bool((part > 0).all(-1).any()) for part in (x, y)),
    ),
    "bounds of intervals among the values": (
        "torch.bucketize(x, y)",
        "torch.randn(64, 128), torch.randn(32).sort().values",
        lambda x, y: bool(torch.isin(x, y).any()) and bool((y[1:] >= y[:-1]).all()),
    ),
    "a threshold itself": ("(x >= 0.3).float().cumsum(-1) + y", FLOATS, lambda x, y: bool((x == 0.3).any())),
    "whole numbers": ("x.cumsum(-1) ** y", "torch.rand(64, 128), 3", lambda x, y: y == 4),
    "a dimension stays": ("x.cumsum(y)", "torch.rand(64, 128), 1", lambda x, y: y == 1),
    "numbers": ("x.cumsum(-1) * y", "torch.rand(64, 128), 0.75", lambda x, y: 0 < y < 1 and y != 0.75),
}


ACROSS: dict[str, tuple[str, str, Holds]] = {
    "columns of zeros": (
        "F.normalize(x, dim=0).cumsum(-1) + y",
        FLOATS,
        lambda x, y: bool((x == 0).all(0).any()),
    ),
    "channels of zeros": (
        "F.batch_norm(x, None, None, training=True) + y",
        "torch.randn(4, 16, 5, 5), torch.randn(4, 16, 5, 5)",
        lambda x, y: bool((x == 0).all(0).all(-1).all(-1).any()),
    ),
    "tiny columns": (
        "F.batch_norm(x, None, None, training=True).cumsum(-1) + y",
        FLOATS,
        lambda x, y: bool(((x != 0).any(0) & (x.abs() < 0.05).all(0)).any()),
    ),
    "a tiny channel": (
        "F.batch_norm(x, None, None, training=True) + y",
        "torch.randn(4, 16, 5, 5), torch.randn(4, 16, 5, 5)",
        lambda x, y: bool(((x != 0).any(0).any(-1).any(-1) & (x.abs() < 0.05).all(0).all(-1).all(-1)).any()),
    ),
    "columns of one sign": (
        "x.amax(0) + y.amin(0)",
        "torch.randn(64, 128), torch.randn(64, 128)",
        lambda x, y: all(bool((part < 0).all(0).any()) and bool((part > 0).all(0).any()) for part in (x, y)),
    ),
}


@pytest.mark.parametrize("what", ACROSS)
def test_inputs_of_other_draws_get_columns_that_a_mixed_one_cannot_hold(what: str) -> None:
    function, inputs, holds = ACROSS[what]
    reference = Reference(TASK.replace("FUNCTION", function).replace("INPUTS", inputs), 30.0)
    for seed in range(3):
        drawn, expected, _ = reference.question(reference.build([], 1), seed, Variant(Draw.WIDE))
        assert holds(*drawn), drawn
        assert bool(torch.isfinite(expected.outputs[0]).all())


def test_a_row_is_not_made_tiny_where_its_answer_would_be_large() -> None:
    reference = Reference(
        TASK.replace("FUNCTION", "x / x.norm(dim=-1).unsqueeze(-1) ** 3 + y").replace("INPUTS", FLOATS), 30.0
    )
    (x, _), expected, _ = reference.question(reference.build([], 1), 0, HARDEST)
    assert float(x.norm(dim=-1).min()) > 0.01
    assert float(expected.outputs[0].abs().max()) < 1e9


@pytest.mark.parametrize("what", ADDED)
def test_inputs_get_what_a_task_accepts_besides(what: str) -> None:
    function, inputs, holds = ADDED[what]
    reference = Reference(TASK.replace("FUNCTION", function).replace("INPUTS", inputs), 30.0)
    for seed in range(3):
        drawn, expected, _ = reference.question(reference.build([], 1), seed, HARDEST)
        assert holds(*drawn), drawn
        assert bool(torch.isfinite(expected.outputs[0]).all())
        again, _, _ = reference.question(reference.build([], 1), seed, HARDEST)
        assert all(
            torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(drawn, again, strict=True)
        )


RARE: dict[str, tuple[str, str, Holds]] = {
    "ignored labels": (
        "F.cross_entropy(x, y, ignore_index=255, reduction='none')",
        "torch.randn(64, 32), torch.randint(0, 32, (64,))",
        lambda x, y: bool((y == 255).any()) and int((y < 32).sum()) > 0,
    ),
    "asked values": (
        "x.masked_fill(x == 7.5, -1e4).softmax(-1) + y",
        "torch.rand(4, 6), torch.rand(4, 6)",
        lambda x, y: bool((x == 7.5).any()),
    ),
    "the ends of a range": (
        "F.binary_cross_entropy(x, y, reduction='none')",
        "torch.rand(4, 6), torch.rand(4, 6)",
        lambda x, y: {0.0, 1.0} <= set(x.flatten().tolist()) & set(y.flatten().tolist()),
    ),
    "probabilities of zero": (
        "F.kl_div(y, x, reduction='none').cumsum(-1)",
        "torch.rand(4, 6).softmax(-1), torch.randn(4, 6)",
        lambda x, y: bool((x == 0).any()) and bool(((x.sum(-1) - 1).abs() < 1e-5).all()),
    ),
    "shared values": (
        "torch.where(x >= y, x, 2 * y).cumsum(-1)",
        "torch.randn(4, 6), torch.randn(4, 6)",
        lambda x, y: bool((x == y).any()),
    ),
    "the largest value twice": (
        "x * (x == x.max()).sum() + y",
        "torch.randn(4, 6), torch.randn(4, 6)",
        lambda x, y: int((x == x.max()).sum()) > 1,
    ),
    "the least value of a row twice": (
        "(x == x.amin(-1, keepdim=True)).float() + y",
        "torch.randn(4, 6), torch.randn(4, 6)",
        lambda x, y: int((x == x.amin(-1, keepdim=True)).sum(-1).max()) > 1,
    ),
    "negative integers and large ones": (
        "x * 3 + y.abs()",
        "torch.randint(0, 50, (3, 8)), torch.randint(0, 50, (3, 8))",
        lambda x, y: int(x.min()) < 0 or int(x.max()) > 50,
    ),
    "large sums of integers": (
        "x.sum(-1).clamp(max=20000) + y.sum(-1)",
        "torch.randint(0, 3, (16, 64)), torch.randint(0, 3, (16, 64))",
        lambda x, y: int(x.sum(-1).max()) > 10**6 and int(x.abs().sum()) < 2**31,
    ),
}


@pytest.mark.parametrize("what", RARE)
def test_no_draw_of_a_small_tensor_lacks_what_a_task_asks_for(what: str) -> None:
    function, inputs, holds = RARE[what]
    reference = Reference(TASK.replace("FUNCTION", function).replace("INPUTS", inputs), 30.0)
    model = reference.build([], 1)
    for seed in range(80):
        drawn, _, _ = reference.question(model, seed, HARDEST)
        assert holds(*drawn), drawn


@pytest.mark.parametrize("shape", ["16, 1000", "9, 24", "4, 64", "2, 5, 16", "500"])
@pytest.mark.parametrize("function", ["x", "torch.where(x == 7.5, 1.0, x)"])
def test_in_every_evaluation_exponentials_overflow(shape: str, function: str) -> None:
    """Rows of large values are drawn, and are not among those that zeros and other values replace."""
    task = TASK.replace("self, x, y", "self, x").replace("FUNCTION", f"torch.softmax({function}, -1)")
    reference = Reference(task.replace("INPUTS", f"torch.rand({shape})"), 30.0)
    model = reference.build([], 1)
    for seed in range(20):
        (x,), _, _ = reference.question(model, seed, HARDEST)
        assert bool(x.exp().sum(-1).isinf().any()), (seed, x)


def test_what_a_task_refuses_beside_one_draw_is_tried_beside_another() -> None:
    task = TASK.replace("self, x, y", "self, x").replace("FUNCTION", "F.softmax(x, -1)")
    reference = Reference(task.replace("INPUTS", "torch.randn(32, 4096, dtype=torch.float16)"), 30.0)
    model = reference.build([], 1)
    reference.question(model, 981_988, Variant(Draw.OFFSET))  # a rounding decides the answers to values far from zero
    (x,), _, _ = reference.question(model, 981_989, HARDEST)
    largest, second = x.float().topk(2).values.T
    assert bool((largest - second > 100).any())


@pytest.mark.parametrize(("shape", "has"), [("1, 4096", True), ("4096", True), ("3, 64", True), ("4, 64", False)])
def test_inputs_of_few_rows_are_told(shape: str, has: bool) -> None:
    for function, wanted in (("x.cumsum(-1)", has), ("x.exp()", False)):
        task = TASK.replace("self, x, y", "self, x").replace("FUNCTION", function)
        reference = Reference(task.replace("INPUTS", f"torch.randn({shape})"), 30.0)
        assert reference.has_few_rows(reference.build([], 1)) == wanted


def test_thresholds_that_half_precision_does_not_hold_are_not_drawn() -> None:
    task = TASK.replace("FUNCTION", "(x > 0.3).half().cumsum(-1) + (y > 0.25)")
    inputs = "torch.randn(64, 128).half(), torch.randn(64, 128).half()"
    reference = Reference(task.replace("INPUTS", inputs), 30.0)
    (_, y), _, _ = reference.question(reference.build([], 1), 1, HARDEST)
    assert bool((y == 0.25).any())
    assert reference._hardener.exact(reference.build([], 1)) == (0.25, 0.3)


@pytest.mark.parametrize("seed", [4994189076330584, 3344805581983947])
def test_large_inputs_that_waver_by_themselves_do_not_keep_a_threshold_out(seed: int) -> None:
    task = TASK.replace("self, x, y", "self, x").replace("FUNCTION", "torch.softmax(torch.where(x > 1e6, 0.0, x), -1)")
    reference = Reference(task.replace("INPUTS", "torch.randn(64, 256)"), 30.0)
    drawn, _, _ = reference.question(reference.build([], 1), seed, HARDEST)
    assert float(drawn[0].max()) > 1e6


def test_parameters_that_are_the_same_for_every_seed_are_found() -> None:
    task = TASK.replace("FUNCTION", "self.slope(x) * self.ramp + self.drawn + y").replace("INPUTS", FLOATS)
    held = """
    def __init__(self):
        super().__init__()
        self.slope = torch.nn.PReLU()
        self.ramp = torch.nn.Parameter(torch.linspace(0, 1, 128))
        self.drawn = torch.nn.Parameter(torch.randn(128))
    def forward"""
    reference = Reference(task.replace("\n    def forward", held), 30.0)
    assert reference.fixed_parameters(reference.build([], 1), []) == {"slope.weight", "ramp"}


def test_integers_lie_beside_those_that_they_are_compared_with() -> None:
    reference = Reference(
        TASK.replace("FUNCTION", "(x >= y - 1).cumsum(-1)").replace(
            "INPUTS", "torch.randint(0, 400, (16,)), torch.randint(200, 600, (16,))"
        ),
        30.0,
    )
    (x, y), _, _ = reference.question(reference.build([], 1), 1, Variant(Draw.STRUCTURED))
    assert {-1, 0, 1} <= set((x - y).tolist())
