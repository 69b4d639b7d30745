"""Draws in which nearly all rows go to one place."""

from __future__ import annotations

import torch

from weir.kernel_eval.tasks.draws.crowds import at_one_place, with_like_rows
from weir.kernel_eval.tasks.draws.integer_draws import observed


def test_nearly_all_rows_have_their_largest_value_at_one_place() -> None:
    rows = with_like_rows(torch.randn(4, 16, 8).exp())
    counts = rows.view(64, 8).argmax(-1).bincount()
    assert int(counts.max()) >= 62
    assert len(torch.unique(rows[..., 0])) > 50  # each times a number of its own


def test_few_rows_stay() -> None:
    for value in (torch.randn(4, 8), torch.randn(64), torch.randn(64, 1)):
        assert with_like_rows(value) is value


def test_nearly_all_integers_are_one_of_their_values() -> None:
    draws = [torch.randint(0, 8, (64,)) for _ in range(4)]
    seen = observed(draws)
    counts = at_one_place(draws[0], seen).bincount()
    assert 62 <= int(counts.max()) < 65
    ordered = [draw.sort().values for draw in draws]
    crowd = at_one_place(ordered[0], observed(ordered))
    assert torch.equal(crowd, crowd.sort().values)
    assert int(crowd.bincount().max()) > 50


def test_permutations_masks_and_what_is_the_same_in_each_draw_stay() -> None:
    permutations = [torch.randperm(64) for _ in range(4)]
    masks = [torch.rand(64) < 0.5 for _ in range(4)]
    for draws in (permutations, masks, [torch.arange(64)] * 4):
        assert torch.equal(at_one_place(draws[0], observed(draws)), draws[0])
