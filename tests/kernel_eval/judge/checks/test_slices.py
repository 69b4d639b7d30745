"""Slices of an answer, and what they find: a part that is wrong beside larger values."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.judge.checks.slices import pieces_of, slices_of
from weir.kernel_eval.judge.checks.tolerance import compare


def test_a_slice_has_its_own_scale_and_the_last_overlaps() -> None:
    values = torch.arange(1.0, 151.0)  # slices of 64: from 0, 64 and 86
    (slices,) = slices_of(values.shape)
    scale = slices.root_mean_square(values.square(), torch.ones_like(values))
    assert scale.shape == (150,)
    for index, first in ((0, 0), (63, 0), (64, 64), (127, 64), (128, 86), (149, 86)):
        assert scale[index] == pytest.approx(float(values[first : first + 64].square().mean().sqrt()))
        assert slices.quantile(values, 0.5)[index] == first + 32


def test_values_that_do_not_count_are_left_out() -> None:
    values = torch.ones(4, 64)
    values[1, 10] = 1e9
    rows, columns = slices_of(values.shape)
    squares, counted = values.square(), values < 2
    assert bool((rows.root_mean_square(squares.sum(1), counted.sum(1))[[0, 2, 3]] == 1).all())
    assert columns.root_mean_square(squares.sum(0), counted.sum(0)).shape == (1, 64)


@pytest.mark.parametrize("shape", [(), (1,), (64,), (8, 8), (1, 1, 64), (0, 4)])
def test_few_elements_are_one_slice(shape: tuple[int, ...]) -> None:
    assert slices_of(torch.Size(shape)) == []


PARTS = {
    "columns": (slice(None), slice(60, 70)),
    "rows": (slice(30, 40),),
    "every other column": (slice(None), slice(None, None, 2)),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_small_part_beside_large_values_must_be_right(part: str) -> None:
    torch.manual_seed(1)
    expected = torch.randn(80, 100) * 1e4
    expected[PARTS[part]] *= 1e-6
    got = expected * (1 + 1e-6 * torch.randn(80, 100))
    assert compare(got, expected) is None
    got[PARTS[part]] *= 1.5
    assert compare(got, expected, by_slices=False) is None
    difference = compare(got, expected)
    assert difference is not None
    assert "times the root mean square around it" in difference.message


def test_numbers_too_small_for_all_digits_may_be_zeros() -> None:
    expected = torch.cat([torch.randn(100), torch.full((100,), 1e-39)])
    assert compare(expected.where(expected.abs() > 1e-30, 0.0), expected) is None


@pytest.mark.parametrize("shape", [(), (7,), (5_000_001,), (3, 1_500_000), (2, 3, 700, 900), (4096, 513), (0, 4)])
def test_pieces_are_small_and_hold_each_element_once(shape: tuple[int, ...]) -> None:
    times = torch.zeros(shape, dtype=torch.uint8)
    for at in pieces_of(times.shape):
        assert times[at].numel() <= 1 << 20
        assert times[at].dim() == len(shape)
        times[at] += 1
    assert bool((times == 1).all())
