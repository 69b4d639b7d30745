"""Where draws put other values: as many as asked for, and never none."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.places import any_of, distinct, holding, some


@pytest.mark.parametrize(("count", "num_elements"), [(0, 0), (0, 5), (1, 1), (3, 3), (3, 64), (64, 1000)])
def test_places_differ_and_lie_in_the_tensor(count: int, num_elements: int) -> None:
    for _ in range(100):
        at = distinct(count, num_elements).tolist()
        assert len(set(at)) == count
        assert all(0 <= place < num_elements for place in at)


@pytest.mark.parametrize("shape", [(1,), (2,), (9,), (4, 16), (64, 128)])
def test_some_places_are_never_none(shape: tuple[int, ...]) -> None:
    assert all(bool(some(torch.zeros(shape), 1 << 20).any()) for _ in range(200))


def test_no_elements_have_no_places() -> None:
    assert some(torch.zeros(0, 3), 4).shape == any_of([1.0], torch.zeros(0, 3)).shape == (0, 3)


def test_each_point_is_drawn_if_there_is_room() -> None:
    for _ in range(200):
        assert set(any_of([1.0, 2.0, 3.0], torch.zeros(3)).tolist()) == {1.0, 2.0, 3.0}
        assert set(any_of([1.0, 2.0, 3.0], torch.zeros(2)).tolist()) < {1.0, 2.0, 3.0}


@pytest.mark.parametrize("size", [2, 3, 4, 64])
def test_a_value_holds_all_points_that_leave_room_for_its_own(size: int) -> None:
    own = torch.zeros(size, dtype=torch.int64)
    for _ in range(200):
        held = set(holding(own, [7, 255], 1 << 20).tolist())
        assert 0 in held
        assert held - {0} == {7, 255} if size > 2 else held - {0} in ({7}, {255})


@pytest.mark.parametrize("shape", [(5,), (4, 16), (64, 128)])
def test_the_largest_and_the_least_value_stay(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape)
    largest, least = 9.0, -9.0  # beyond the points
    value.view(-1)[torch.randperm(value.numel())[:2]] = torch.tensor([largest, least])
    for _ in range(100):
        held = holding(value, [0.0, 0.5], 2)
        assert (held.max(), held.min()) == (largest, least)
        assert {0.0, 0.5} <= set(held.flatten().tolist())


def test_a_value_of_one_element_or_without_points_stays() -> None:
    one, several = torch.zeros(1), torch.zeros(5)
    assert holding(one, [1.0], 2) is one
    assert holding(several, [], 2) is several


def test_a_value_keeps_its_shape_and_strides_may_be_any() -> None:
    transposed = torch.arange(12.0).view(3, 4).t()
    held = holding(transposed, [100.0], 1 << 20)
    kept = held != 100.0
    assert held.shape == transposed.shape
    assert int((~kept).sum()) == 1
    assert torch.equal(held[kept], transposed[kept])
