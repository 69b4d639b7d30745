"""What roundings change: arguments and results of operators are moved, unless float32 holds them exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from weir.kernel_eval.tasks import rounding
from weir.kernel_eval.tasks.rounding import RoundedOperators, WideOperators, nudged

HALF = torch.finfo(torch.float32).eps / 2


def moves(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far each element is off, as a part of half a rounding of float32."""
    return ((got - exact) / exact).abs() / HALF


def test_arguments_are_moved_by_a_quarter_to_a_half_of_a_rounding() -> None:
    values = torch.rand(1000) + 1
    assert bool(((found := moves(nudged(values), values.double())) >= 0.499).all()) and float(found.max()) <= 1.001
    assert {"up", "down"} == {
        "up" if one > other else "down" for one, other in zip(nudged(values), values, strict=True)
    }


def test_complex_numbers_are_moved_in_both_parts() -> None:
    values = torch.rand(100, dtype=torch.complex64) + 1 + 1j
    got = nudged(values)
    assert got.dtype is torch.complex128
    for part, exact in ((got.real, values.real), (got.imag, values.imag)):
        assert bool((moves(part, exact.double()) >= 0.49).all())


def test_results_that_float32_cannot_hold_are_moved_and_each_operator_moves_others_way() -> None:
    x = torch.rand(1000, dtype=torch.float64) + 1
    with RoundedOperators():
        first, second = x * x, x * x
    for got in (first, second):
        assert bool((moves(got, x * x) >= 0.499).all()) and float(moves(got, x * x).max()) <= 1.001
    assert not torch.equal(first, second)


def test_whole_numbers_copies_views_and_choices_stay_as_they_are() -> None:
    whole, x = torch.arange(1000.0, dtype=torch.float64), torch.rand(10, 100, dtype=torch.float64)
    with RoundedOperators():
        assert torch.equal(whole + 2 * whole, 3 * whole) and whole.sum() == 499_500
        for one in (x.clone(), x.t().contiguous().t(), x.relu(), torch.where(x > 0.5, x, x), x.view(-1).view(10, 100)):
            assert torch.equal(one, x)
        assert torch.equal(x.max(1).values, x.amax(1))


@pytest.mark.parametrize("alike", [False, True])
def test_a_sum_that_is_exact_by_chance_is_moved(alike: bool) -> None:
    shares = torch.full((2, 3), 1 / 3, dtype=torch.float64)
    shares[1] = torch.tensor([0.25, 0.25, 0.5])
    ones = torch.ones(3, dtype=torch.float64)
    with RoundedOperators(alike=alike):
        for sums in (shares.sum(1), shares @ ones):
            assert sums[0] != 1 and sums[1] == 1 and abs(float(sums[0]) - 1) < 1e-7
        assert shares.amax(1)[0] == 1 / 3 and torch.linalg.vector_norm(shares, float("inf")) == 0.5


def test_an_operator_in_place_and_the_first_of_several_results_are_moved() -> None:
    x, weight = torch.rand(4, 64, dtype=torch.float64) + 1, torch.rand(64, dtype=torch.float64)
    exact = torch.nn.functional.layer_norm(x, [64], weight)
    with RoundedOperators():
        changed = x.clone().mul_(weight)
        normed = torch.nn.functional.layer_norm(x, [64], weight)
    assert bool((moves(changed, x * weight) >= 0.499).all())
    assert bool((moves(normed, exact) >= 0.499).all()) and float(moves(normed, exact).max()) <= 1.001


def test_equal_values_stay_equal_where_a_task_asks_for_that() -> None:
    values = torch.randn(50).repeat(3)
    assert not torch.equal(nudged(values)[:50], nudged(values)[50:100])
    near = nudged(values, alike=True)
    with RoundedOperators(alike=True):
        scaled = near / 3
    for made, exact in ((near, values.double()), (scaled, near / 3)):
        assert torch.equal(made[:50], made[50:100])
        assert bool((made != exact).all())
        assert bool((((made - exact) / exact).abs() < 1e-7).all())


def test_equal_results_of_two_operators_stay_equal_there() -> None:
    ratio, a = torch.rand(100, dtype=torch.float64) + 0.5, torch.randn(100, dtype=torch.float64)
    for alike in (True, False):
        with RoundedOperators(alike=alike):
            loss, clipped = a * ratio, a * ratio.clamp(max=1.2)
        assert torch.equal(loss[ratio < 1.2], clipped[ratio < 1.2]) == alike


@pytest.mark.parametrize("alike", [False, True])
def test_large_tensors_are_moved_piece_by_piece_as_they_would_be_whole(
    alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = torch.randn(9, 11)
    values[2, 3] = 0.1

    def moved() -> list[torch.Tensor]:
        near = nudged(values, 3.0, (0.1,), alike=alike, phase=2)
        with RoundedOperators(alike=alike, formulas=True):
            return [near, near.exp(), near.t().sigmoid(), near.tanh(), near.mul(2.5).add_(near)]

    whole = moved()
    assert float(whole[0][2, 3]) == float(values[2, 3]), "what the task asks for stays"
    assert not bool((whole[0] == values).sum() > 1)
    monkeypatch.setattr(rounding, "_PIECE", 7)
    assert len(list(rounding._pieces(values))) == 15
    assert all(torch.equal(one, two) for one, two in zip(moved(), whole, strict=True))


def test_masks_of_zeros_and_ones_are_not_moved() -> None:
    mask = (torch.rand(100) < 0.5).float()
    assert torch.equal(nudged(mask, 32.0), mask.double())
    assert not bool((nudged(torch.where(mask == 1, 1.0, 0.5)) == 1).any())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.arange(8).float() @ x,
        lambda x: x.to(torch.float32) @ x,
        lambda x: torch.zeros(8, 8).index_add_(0, torch.arange(8), x),
        lambda x: torch.full((8, 8), 0.1) @ x,
        lambda x: x.half().float() @ x,
        lambda x: x.softmax(-1, dtype=torch.float32) @ x,
    ],
)
def test_what_a_task_makes_in_float32_is_in_float64_where_all_else_is(function: Callable[..., torch.Tensor]) -> None:
    x = torch.rand(8, 8, dtype=torch.float64)
    with WideOperators():
        got = function(x)
    assert got.dtype is torch.float64
    assert bool((got.float() != got).any())  # more than float32 holds
    assert torch.allclose(got.float(), function(x.float()), rtol=1e-5)
    assert torch.get_default_dtype() is torch.float32


def test_what_is_drawn_at_random_is_what_float32_has() -> None:
    torch.manual_seed(1)
    expected = torch.rand(8), torch.randn(4, 4)
    torch.manual_seed(1)
    with WideOperators():
        got = torch.rand(8), torch.randn(4, 4)
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize("function", [torch.nn.functional.elu, torch.tanh, torch.expm1])
def test_what_a_formula_through_one_loses_vanishes_at_the_one_where_it_ends(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.tensor([1e-6, -1e-6, -40.0], dtype=torch.float64)
    with torch.no_grad(), RoundedOperators(formulas=True):
        found = function(x)
    off = (found - function(x)).abs()
    assert bool((off[:2] > 1e-8).all())
    assert float(off[2]) == 0
