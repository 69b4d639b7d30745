"""Which of equal values `topk` and `sort` take: the first or the last, and only where torch leaves it open."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.watches.ties import OtherTies

VALUES = torch.tensor([[1.0, 0.0, 2.0, 0.0, 0.0], [3.0, 3.0, 3.0, 1.0, 3.0]])


@pytest.mark.parametrize(("last", "places"), [(False, [[2, 0, 1], [0, 1, 2]]), (True, [[2, 0, 4], [4, 2, 1]])])
def test_the_largest_are_the_first_or_the_last_of_equal_ones(last: bool, places: list[list[int]]) -> None:
    with OtherTies("last" if last else "first"):
        values, taken = torch.topk(VALUES, 3, dim=-1)
        across = VALUES.mT.contiguous().topk(3, dim=0)
    assert taken.tolist() == places
    assert torch.equal(values, VALUES.gather(1, taken))
    assert torch.equal(across.indices, taken.mT)
    assert torch.equal(across.values, values.mT)


@pytest.mark.parametrize("last", [False, True])
def test_the_least_and_all_in_order(last: bool) -> None:
    with OtherTies("last" if last else "first"):
        least = torch.topk(VALUES, 2, largest=False)
        ordered = torch.sort(VALUES, descending=True)
        places = torch.argsort(VALUES)
    assert least.indices.tolist() == ([[4, 3], [3, 4]] if last else [[1, 3], [3, 0]])
    assert torch.equal(ordered.values, torch.sort(VALUES, descending=True).values)
    assert places.tolist() == ([[4, 3, 1, 0, 2], [3, 4, 2, 1, 0]] if last else [[1, 3, 4, 0, 2], [3, 0, 1, 2, 4]])


def test_a_stable_order_and_a_single_number_stay() -> None:
    with OtherTies("last"):
        assert torch.sort(VALUES, stable=True).indices.tolist() == [[1, 3, 4, 0, 2], [3, 0, 1, 2, 4]]
        assert int(torch.tensor(3.0).topk(1).indices) == 0
        assert int(VALUES[0].argmin()) == 1


RANKED = {
    "x.kthvalue(2, -1)": ([1, 0], [4, 4], [3, 0]),
    "x.median(-1)": ([1, 0], [4, 4], [4, 1]),
    "x.nanmedian(-1, True)": ([1, 0], [4, 4], [4, 1]),
    "x.mode()": ([1, 0], [4, 4], [1, 0]),
    "x.mT.contiguous().kthvalue(4, 0)": ([0, 0], [0, 4], [0, 2]),
}


@pytest.mark.parametrize("function", RANKED)
def test_the_place_of_a_rank_is_that_of_any_equal_value(function: str) -> None:
    known = eval(function, {"x": VALUES})
    for taken, places in zip(("first", "last", "ranked"), RANKED[function], strict=True):
        with OtherTies(taken):
            values, found = eval(function, {"x": VALUES})
        assert torch.equal(values, known.values)
        assert found.flatten().tolist() == places
        assert found.shape == known.indices.shape
