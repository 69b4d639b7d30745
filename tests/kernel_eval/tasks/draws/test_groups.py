"""Groups of rows, as an index names them, that are far from zero as a whole."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.groups import names_groups, with_far_groups


def far_groups(value: torch.Tensor, index: torch.Tensor) -> list[tuple[float, float]]:
    """The least and the largest value of each group that is far from zero."""
    ends = [value[index == group].aminmax() for group in torch.unique(index)]
    return sorted((float(low), float(high)) for low, high in ends if float(low.abs().minimum(high.abs())) > 10)


@pytest.mark.parametrize("shape", [(256,), (256, 16), (256, 4, 4)])
def test_of_many_groups_one_is_beyond_any_start_of_a_maximum_and_two_are_far(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    index, value = torch.randint(0, 32, (256,)), torch.randn(shape)
    lowest, low, high = far_groups(with_far_groups(value, index), index)
    assert lowest[1] < -5e4
    assert low[1] < -10 and high[0] > 10


def test_of_few_groups_one_is_far_and_others_stay() -> None:
    index, value = torch.arange(256) % 3, torch.randn(256, 16)
    changed = with_far_groups(value, index)
    assert len(far_groups(changed, index)) == 1
    assert int((changed == value).all(1).sum()) > 150


def test_what_a_dtype_holds_is_not_left() -> None:
    changed = with_far_groups(torch.randn(64, 8).half(), torch.arange(64) % 8)
    assert bool(torch.isfinite(changed).all())


def test_an_index_has_one_integer_for_each_row_or_element() -> None:
    value = torch.randn(8, 4)
    assert names_groups(torch.zeros(8, dtype=torch.int64), value)
    assert names_groups(torch.zeros(8, 4, dtype=torch.int64), value)
    assert not names_groups(torch.zeros(4, dtype=torch.int64), value)
    assert not names_groups(torch.zeros(8, dtype=torch.bool), value)
    assert not names_groups(torch.zeros((), dtype=torch.int64), value)
