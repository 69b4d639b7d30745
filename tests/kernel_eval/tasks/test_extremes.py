"""Extremes at chosen places: which rows have their largest value where, and what stays as it was."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.places import seldom
from weir.kernel_eval.tasks.extremes import aligned, with_far_extremes, with_moved_extremes, with_rows_in_order


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("change", [with_far_extremes, with_moved_extremes])
def test_some_rows_have_an_extreme_first_and_some_have_one_last(change: object, seed: int) -> None:
    torch.manual_seed(seed)
    value = torch.randn(16, 8, 40)
    changed = change(value, across=True)  # type: ignore[operator]
    assert {0, 39} <= set(changed.argmax(-1).flatten().tolist()) | set(changed.argmin(-1).flatten().tolist())
    assert int((changed != value).sum()) < value.numel() / 8


@pytest.mark.parametrize("seed", range(5))
def test_images_have_their_largest_value_at_their_ends(seed: int) -> None:
    torch.manual_seed(seed)
    images = with_far_extremes(torch.randn(16, 8, 40), across=True).flatten(1)
    assert {0, 8 * 40 - 1} <= set(images.argmax(-1).tolist()) | set(images.argmin(-1).tolist())


def test_each_end_of_few_images_is_the_largest_of_one_whatever_is_drawn() -> None:
    torch.manual_seed(0)
    for _ in range(30):
        value = torch.randn(1, 16, 24, 20) * 10 ** torch.randn(16, 24, 20)
        images = with_far_extremes(value, across=False).flatten(2)[0]
        assert {0, 24 * 20 - 1} <= set(images.argmax(-1).tolist())
        assert {0, 24 * 20 - 1} <= set(images.argmin(-1).tolist())


def test_a_small_row_stays_small() -> None:
    torch.manual_seed(0)
    value = torch.randn(6, 40)
    value[2] *= 1e-6
    assert float(with_far_extremes(value, across=True, farther=100.0)[2].abs().max()) < 1e-4


def test_an_extreme_is_far_from_the_others_and_keeps_the_sign_of_its_row() -> None:
    torch.manual_seed(0)
    value = torch.randn(64, 100).abs() + 1
    value[::2] *= -1
    changed = with_far_extremes(value, across=True)
    assert torch.equal(changed.sign(), value.sign())
    largest = changed[:, -1] == changed.amax(-1)
    second = changed[largest].topk(2).values
    assert bool(largest.any())
    assert bool(((second[:, 0] - second[:, 1]) / second[:, 0].abs() > 0.05).any())


def test_what_is_moved_are_the_values_themselves() -> None:
    torch.manual_seed(0)
    value = torch.rand(16, 40)
    assert torch.equal(with_moved_extremes(value, across=True).flatten().sort().values, value.flatten().sort().values)


def test_zeros_and_rows_with_infinities_stay() -> None:
    torch.manual_seed(0)
    value = torch.randn(16, 16).tril()
    value[3, 0] = float("inf")
    changed = with_far_extremes(value, across=True)
    assert torch.equal(changed == 0, value == 0)
    assert torch.equal(changed[3], value[3])


def test_what_is_minus_infinity_stays_and_ends_are_the_largest_beside_it() -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        value = torch.randn(16, 100)
        value = torch.where(torch.rand(16, 100) < 0.1, -torch.inf, value)
        changed = with_far_extremes(value, across=False)
        assert torch.equal(changed.isinf(), value.isinf())
        assert {0, 99} <= set(changed.argmax(-1).tolist())


def test_in_a_row_in_order_each_value_is_a_running_maximum() -> None:
    torch.manual_seed(0)
    changed = with_rows_in_order(torch.randn(32, 64), dimensions=(1,))
    assert int((changed == changed.cummax(-1).values).all(-1).sum()) == 2
    assert int((changed == changed.cummin(-1).values).all(-1).sum()) == 2


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_weight_make_its_last_product_the_largest(seed: int) -> None:
    torch.manual_seed(seed)
    weight = torch.randn(500, 32)
    for other, product in ((weight, lambda x: x @ weight.mT), (weight.mT.contiguous(), lambda x: x @ weight.mT)):
        change = aligned(torch.randn(16, 32), other)
        assert change is not None
        answer = product(change(torch.randn(16, 32)))
        assert {0, 499} & set(answer.argmax(-1).tolist())


@pytest.mark.parametrize("seed", range(5))
def test_filters_in_corners_make_the_last_row_of_a_convolution_the_largest(seed: int) -> None:
    torch.manual_seed(seed)
    weight = torch.randn(4, 3, 3, 3)
    change = aligned(torch.randn(1, 3, 40, 40), weight)
    assert change is not None
    answer = torch.nn.functional.conv2d(change(torch.randn(1, 3, 40, 40)), weight)
    assert 37 in (answer.flatten(2).argmax(-1) // 38).flatten().tolist()


def test_few_indices_are_the_ends_and_many_are_all() -> None:
    torch.manual_seed(0)
    assert seldom(2, 100).tolist() == [99, 0]
    assert set(seldom(400, 100).tolist()) == set(range(100))
    alone = torch.cat([seldom(1, 100) for _ in range(400)])
    assert int((alone == 99).sum()) > 150
    assert int((alone == 0).sum()) > 60
