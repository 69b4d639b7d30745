"""What is asked of whole answers, which are looked at piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from weir.kernel_eval.tasks import answers
from weir.kernel_eval.tasks.answers import far_apart, largest, specials

NAN, INF = float("nan"), float("inf")


def test_far_apart_is_by_a_hundredth_of_an_element_and_of_what_is_usual() -> None:
    one = torch.tensor([100.0, 0.0, 1.0, NAN, INF])  # usual: 44.73
    assert far_apart(one, torch.tensor([101.4, 0.44, 1.45, 0.0, 0.0])).tolist() == [False] * 5
    assert far_apart(one, torch.tensor([101.5, 0.46, 1.47, 1.0, -1.0])).tolist() == [True] * 5
    assert far_apart(torch.tensor([1, 2]), torch.tensor([1.0, 3.0])).tolist() == [False, True]
    assert far_apart(torch.empty(0), torch.empty(0)).tolist() == []


def test_special_values_are_told_from_numbers_and_each_other() -> None:
    assert specials(torch.tensor([NAN, INF, -INF, 3.0, -0.0])).tolist() == [2, 1, -1, 0, 0]
    assert specials(torch.tensor([complex(NAN, -INF)])).tolist() == [[2, -1]]


def test_the_largest_magnitude_is_of_finite_floats() -> None:
    assert largest([torch.tensor([NAN, -INF, -3.0]), torch.tensor([2.0]), torch.tensor([7]), torch.empty(0)]) == 3.0
    assert largest([torch.tensor([7])]) == 0.0


@pytest.mark.parametrize(
    "asked",
    [
        far_apart,
        lambda one, two: far_apart(one.int(), two.int()),
        lambda one, two: specials(one),
        lambda one, two: torch.tensor(largest([one, two])),
    ],
)
def test_pieces_of_large_answers_give_what_the_whole_gives(
    asked: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = torch.randn(11, 9).t()
    one[3, 4], one[5, 1], one[0, 0] = NAN, INF, -INF
    two = one + 0.02 * torch.randn(9, 11)
    kept = one.clone(), two.clone()
    whole = asked(one, two)
    monkeypatch.setattr(answers, "_PIECE", 7)
    assert torch.equal(asked(one, two), whole)
    assert all(torch.equal(now.nan_to_num(), then.nan_to_num()) for now, then in zip((one, two), kept, strict=True))
