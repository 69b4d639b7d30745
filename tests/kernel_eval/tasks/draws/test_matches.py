"""Integers of few values, which are equal to others: tokens to tokens, labels to labels."""

from __future__ import annotations

import torch

from weir.kernel_eval.tasks.draws.integer_draws import Integers, observed
from weir.kernel_eval.tasks.draws.matches import beside, matched


def seen_of(*draws: torch.Tensor) -> Integers:
    return observed(list(draws))


def test_tokens_of_a_wide_range_are_equal_to_many_others_but_not_to_all() -> None:
    torch.manual_seed(1)
    one, two = ([torch.randint(0, 32000, (16, 32)) for _ in range(4)] for _ in range(2))
    changed = matched([one[0], two[0]], [seen_of(*one), seen_of(*two)])
    assert 0.2 < float((changed[0][:, :, None] == changed[1][:, None, :]).double().mean()) < 0.8
    alike = (changed[0] == changed[1]).double().mean(1)
    assert float(alike.max()) > 0.8
    assert float(alike.min()) < 0.5
    assert 0 <= int(changed[0].min()) <= int(changed[0].max()) < 32000


def test_few_of_many_that_never_repeat_do_so_by_chance() -> None:
    torch.manual_seed(1)
    few, all_ = ([torch.randperm(4096)[:16] for _ in range(8)], [torch.randperm(16) for _ in range(8)])
    assert seen_of(*few).distinct
    assert len(torch.unique(matched([few[0]], [seen_of(*few)])[0])) < 16
    assert matched([all_[0]], [seen_of(*all_)])[0] is all_[0]


def test_masks_and_what_is_the_same_in_each_draw_stay_and_an_order_is_kept() -> None:
    mask, same = torch.rand(8, 8) < 0.5, torch.arange(20)
    sorted_ = [torch.randint(0, 99, (64,)).sort().values for _ in range(4)]
    values, known = [mask, same, sorted_[0]], [seen_of(mask, ~mask), seen_of(same, same), seen_of(*sorted_)]
    changed = matched(values, known)
    assert changed[0] is mask
    assert changed[1] is same
    assert torch.equal(changed[2], changed[2].sort().values)
    assert not torch.equal(changed[2], sorted_[0])


def test_some_rows_are_as_another_tensor_s_whole_and_some_as_others_of_their_own() -> None:
    torch.manual_seed(1)
    one, two = ([torch.randint(0, 32000, (32, 16)) for _ in range(4)] for _ in range(2))
    changed = matched([one[0], two[0]], [seen_of(*one), seen_of(*two)])
    of_rows = (changed[0] == changed[1]).sum(-1)
    assert int((of_rows == 16).sum()) >= 2
    assert int((of_rows == 15).sum()) >= 2
    num_equal = (changed[0][:, None] == changed[0]).sum(-1).fill_diagonal_(0)
    assert bool((num_equal == 16).any())
    assert bool((num_equal == 15).any())


def test_a_value_beyond_the_range_of_one_tensor_leaves_the_others_to_match() -> None:
    torch.manual_seed(1)
    one, two = [torch.randint(0, 32000, (16,)) for _ in range(4)], [torch.randint(0, 31000, (24,)) for _ in range(4)]
    for _ in range(100):
        changed = matched([one[0], two[0]], [seen_of(*one), seen_of(*two)])
        assert bool(torch.isin(changed[0], changed[1]).any())


def test_some_are_as_those_of_another_or_one_less_or_one_more_within_their_own_range() -> None:
    torch.manual_seed(1)
    positions, lengths = ([torch.randint(low, high, (16,)) for _ in range(8)] for low, high in ((0, 40), (10, 50)))
    seen = seen_of(*positions)
    changed = beside(positions[0], lengths[0], seen)
    assert {-1, 0, 1} <= set((changed - lengths[0]).tolist())
    assert 0 <= int(changed.min()) <= int(changed.max()) < 40
    assert int((changed == positions[0]).sum()) >= 8
    assert beside(positions[0], lengths[0][:8], seen) is positions[0]
    masks = [torch.rand(16) < 0.5 for _ in range(8)]
    assert beside(masks[0], masks[1], seen_of(*masks)) is masks[0]
