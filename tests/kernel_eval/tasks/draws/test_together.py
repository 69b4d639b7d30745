"""Changes of several inputs together: one alone is NaN, squares or sums leave the range, all are nearly zero."""

from __future__ import annotations

import torch

from weir.kernel_eval.tasks.draws.together import (
    are_alike,
    faded,
    with_far_squares,
    with_far_sums,
    with_lone_nans,
    with_zero_rows_together,
)


def _pair() -> list[torch.Tensor]:
    return [torch.randn(64, 128), torch.randn(64, 128)]


def test_where_one_is_nan_the_other_is_a_number() -> None:
    one, two = with_lone_nans(_pair())
    assert one.isnan().any()
    assert two.isnan().any()
    assert not (one.isnan() & two.isnan()).any()
    assert not torch.fmax(one, two).isnan().any()


def test_squares_overflow_and_their_root_does_not() -> None:
    one, two = with_far_squares(_pair())
    assert torch.isfinite(torch.hypot(one, two)).all()
    overflows = torch.isinf((one * one + two * two).sqrt()).any(-1)
    assert 1 <= int(overflows.sum()) <= 4


def test_sums_overflow_and_half_of_them_does_not() -> None:
    one, two = with_far_sums(_pair())
    assert torch.isfinite(one / 2 + two / 2).all()
    overflows = torch.isinf((one + two) / 2)
    assert 1 <= int(overflows.all(-1).sum()) <= 4
    assert torch.equal(one.sign()[overflows], two.sign()[overflows])


def test_all_are_nearly_zero_together_and_some_are_squares_of_others() -> None:
    one, two = faded([torch.ones(1000), torch.full((1000,), -2.0)])
    assert float(one.abs().max()) <= 1e-3
    assert bool(((one == 0) & (two == 0)).any())
    assert bool((two <= 0).all())
    is_square = (two < 0) & ((2 * one.double().square() / -two.double() - 1).abs() < 1e-3)
    assert 0.1 < float(is_square.float().mean()) < 0.5
    assert float(two.abs()[is_square].max()) < 1e-5
    assert float(two.abs()[is_square].min()) < 1e-15


def test_few_or_narrow_rows_stay() -> None:
    for shape in ((4, 128), (64, 8), (128,), ()):
        inputs = [torch.randn(shape), torch.randn(shape)]
        for change in (with_far_squares, with_far_sums):
            assert all(torch.equal(*pair) for pair in zip(change(inputs), inputs, strict=True))


def test_only_several_tensors_of_one_form_are_changed_together() -> None:
    assert are_alike(_pair())
    assert not are_alike(_pair()[:1])
    assert not are_alike([torch.zeros(2, 3), torch.zeros(3, 2)])
    assert not are_alike([torch.zeros(2), torch.zeros(2, dtype=torch.float64)])


def test_rows_are_zero_in_all_tensors_that_have_them() -> None:
    given = [torch.randn(64, 128), torch.ones(64, 32, dtype=torch.bool), torch.randn(128)]
    one, mask, other = with_zero_rows_together(given)
    assert int((one == 0).all(-1).sum()) == 2
    assert torch.equal((one == 0).all(-1), ~mask.any(-1))
    assert torch.equal(other, given[2])


def test_a_whole_piece_is_zero_in_all_tensors() -> None:
    one, weights = with_zero_rows_together([torch.randn(8, 4, 16), torch.randn(8)])
    assert torch.equal((one == 0).all(-1).all(-1), weights == 0)
    assert int((weights == 0).sum()) == 1


def test_few_rows_are_zero_in_calls_of_their_own() -> None:
    for count, few in ((4, True), (8, False)):
        given = [torch.randn(count, 16), torch.randn(count, 16)]
        one, two = with_zero_rows_together(given, few=few)
        assert int(((one == 0) & (two == 0)).all(-1).sum()) == 1
        assert all(map(torch.equal, with_zero_rows_together(given, few=not few), given))
