"""Integers and booleans that are drawn anew: what they keep of the task's own draws, and what they add to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from weir.kernel_eval.tasks.draws.constant_inputs import replacements
from weir.kernel_eval.tasks.draws.integer_draws import (
    NUM_DRAWS,
    asked_for,
    left_out,
    num_draws,
    observed,
    other_single,
    outside,
    redrawn_integers,
    rows_of_asked,
    with_moved_integers,
    with_one_each,
)
from weir.kernel_eval.tasks.input_variants import HARDEST, Draw, Variant
from weir.kernel_eval.tasks.reference import Reference


def made(make: Callable[[], torch.Tensor], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """One of the task's own draws, and new values for it."""
    torch.manual_seed(seed)
    seen = observed([make() for _ in range(NUM_DRAWS)])
    declared = make()
    return declared, redrawn_integers(declared, seen)


def rows_of_offsets() -> torch.Tensor:
    return torch.cat([torch.tensor([0]), torch.randint(0, 99, (20,)).sort().values, torch.tensor([99])])


KEPT: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], bool]]] = {
    "range": (lambda: torch.randint(5, 50, (30, 9)), lambda new, _: int(new.min()) >= 5 and int(new.max()) < 50),
    "a number for none": (
        lambda: torch.where(torch.rand(500) < 0.1, -100, torch.randint(0, 30, (500,))),
        lambda new, _: not bool(((new < 0) & (new != -100)).any()),
    ),
    "labels": (lambda: torch.randint(0, 2, (400,)) * 2 - 1, lambda new, _: set(new.tolist()) == {-1, 1}),
    "divisor": (lambda: torch.randint(0, 99, (400,)) * 16, lambda new, _: bool((new % 16 == 0).all())),
    "permutation": (lambda: torch.randperm(40), lambda new, old: torch.equal(new.sort()[0], old.sort()[0])),
    "one hot": (
        lambda: torch.nn.functional.one_hot(torch.randint(0, 7, (30,)), 7), lambda new, _: bool((new.sum(1) == 1).all())
    ),
    "offsets": (
        rows_of_offsets, lambda new, _: torch.equal(new.sort()[0], new) and (int(new[0]), int(new[-1])) == (0, 99)
    ),
    "triangle": (lambda: (torch.rand(20, 20) > 0.2).tril(), lambda new, _: torch.equal(new.tril(), new)),
    "symmetry": (
        lambda: (lambda a: a + a.mT)(torch.randint(0, 50, (20, 20))), lambda new, _: torch.equal(new, new.mT)
    ),
    "sizes that have a sum": (
        lambda: torch.bincount(torch.randint(0, 9, (500,)), minlength=9), lambda new, _: int(new.sum()) == 500
    ),
    "all 64 bits": (lambda: torch.randint(-(2**63), 2**63 - 1, (50,)), lambda new, old: new.dtype is old.dtype),
}  # fmt: skip


@pytest.mark.parametrize("kept", KEPT)
def test_what_the_task_may_rely_on_is_kept(kept: str) -> None:
    make, holds = KEPT[kept]
    for seed in range(20):
        declared, drawn = made(make, seed)
        assert (drawn.shape, drawn.dtype, drawn.stride()) == (declared.shape, declared.dtype, declared.stride())
        assert holds(drawn, declared), (seed, drawn)


@pytest.mark.parametrize("make", [lambda: torch.arange(9), lambda: torch.tensor(3), lambda: torch.empty(0, dtype=int)])
def test_what_never_changes_stays(make: Callable[[], torch.Tensor]) -> None:
    assert torch.equal(*made(make))


def test_few_values_repeat_and_the_extremes_occur() -> None:
    repeats = extremes = 0
    for seed in range(10):
        declared, drawn = made(lambda: torch.randint(0, 30000, (8, 256)), seed)
        repeats += int((drawn[:, 1:] == drawn[:, :-1]).sum() > 100)
        extremes += int(((drawn == drawn.min()) | (drawn == drawn.max())).sum() > 100)
        assert not torch.equal(drawn, declared)
    assert (repeats, extremes) == (10, 10)


def test_masks_are_of_all_densities() -> None:
    shares = [
        float(row.float().mean()) for seed in range(20) for row in made(lambda: torch.rand(8, 200) > 0.5, seed)[1]
    ]
    assert min(shares) < 0.15
    assert max(shares) > 0.85


TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, index): CHECK; return x[index]
def get_inputs(): return [torch.rand(50, 4), [torch.randint(0, 50, (20, 40))]]
""".replace("index)", "indices)").replace("CHECK", "index = indices[0]; CHECK")


@pytest.mark.parametrize("check", ["pass", "assert int((index[:, 1:] == index[:, :-1]).sum()) < 40"])
def test_integers_stay_where_the_reference_refuses_others(check: str) -> None:
    reference = Reference(TASK.replace("CHECK", check), 5.0)
    model = reference.build([], 1)
    inputs, expected, variant = reference.question(model, 3, HARDEST)
    assert torch.equal(expected.outputs[0], inputs[0][inputs[1][0]])
    assert variant.integers == (check == "pass")
    kept = (inputs[1][0] == reference.inputs(3)[1][0]).float().mean()
    assert (kept > 0.7) == (check != "pass")  # of those that stay, some values are left out


def test_they_are_drawn_for_the_size_of_the_call() -> None:
    source = """
import torch
count = 64
class Model(torch.nn.Module):
    def forward(self, x, index): return x[index]
def get_inputs(): return [torch.rand(count, 4), torch.randint(0, count, (500,))]
"""
    reference = Reference(source, 5.0)
    for seed in range(5):
        inputs, _, variant = reference.question(reference.build([], 1), seed, HARDEST._replace(size_seed=seed))
        assert variant.integers
        assert variant.draw is Draw.POINTS  # those of a hard draw, and more: it is one operator
        assert int(inputs[1].max()) < inputs[0].shape[0] < 64


def test_some_values_are_left_out() -> None:
    own = [torch.randint(0, 16, (200,)) for _ in range(4)]
    seen, ends = observed(own), 0
    for draw in own * 10:
        changed = left_out(draw, seen)
        missing = set(range(16)) - set(changed.tolist())
        assert missing
        assert set(changed.tolist()) <= set(draw.tolist())
        ends += bool(missing & {0, 15})
    assert 0 < ends < 40


def test_of_booleans_none_is_left_out() -> None:
    mask = torch.rand(40) < 0.5
    assert left_out(mask, observed([mask, ~mask])) is mask


def test_what_a_task_asks_for_is_not_left_out() -> None:
    own = [torch.randint(0, 16, (200,)) for _ in range(4)]
    for draw in own * 10:
        left = set(left_out(draw, observed(own), asked=(0,)).tolist())
        assert 0 in left
        assert len(left) < 16


def test_a_row_of_one_label_is_asked_for_beside_those_of_other_draws() -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, labels):
        kept = labels != -100
        return (x * kept).sum(-1) / kept.sum(-1).clamp(min=1)
def get_inputs():
    labels = torch.where(torch.rand(8, 16) < 0.3, -100, torch.randint(0, 32, (8, 16)))
    return [torch.randn(8, 16), labels]
"""
    for seed in range(60):
        reference = Reference(source, 30.0)
        inputs, _, variant = reference.question(reference.build([], seed), seed, Variant(Draw.STRUCTURED))
        assert variant.draw is Draw.STRUCTURED
        assert bool(((inputs[1] != -100).sum(-1) == 1).any())


def test_a_group_of_a_sorted_draw_is_left_out_in_its_order() -> None:
    own = [torch.randint(0, 16, (200,)).sort().values for _ in range(4)]
    changed = [left_out(own[0], observed(own)) for _ in range(20)]
    assert any(len(set(one.tolist())) < 16 for one in changed)  # what is the same in all draws stays
    assert all(torch.equal(one, one.sort().values) for one in changed)


def test_integers_of_a_wide_range_do_not_repeat_by_chance() -> None:
    wide = [torch.randint(0, 2**31 - 1, (64, 128)) for _ in range(4)]
    places = [torch.stack([torch.randperm(128) for _ in range(64)]) for _ in range(4)]
    assert (observed(wide).distinct, observed(places).distinct) == (False, True)


def test_what_lies_outside_of_a_range_is_the_nearest_below_it_and_all_above_it() -> None:
    seen = observed([torch.arange(10).repeat(2), torch.arange(10).repeat(2)])
    assert outside(seen, (-3, -2, -1, 0, 5, 10, 11)) == [10, 11, -1]


def test_one_number_is_one_less_or_more_and_never_below_zero_and_mostly_one_that_decides() -> None:
    torch.manual_seed(0)
    found = [int(other_single(torch.tensor(3), ())) for _ in range(40)]
    assert set(found) == {2, 4}
    assert {int(other_single(torch.tensor(0), ())) for _ in range(40)} == {1}
    asked = [int(other_single(torch.tensor(3, dtype=torch.int8), (3, 7, 300))) for _ in range(80)]
    assert set(asked) == {2, 4, 7}
    assert asked.count(7) > 40
    assert not other_single(torch.tensor(True), ())


def labels() -> torch.Tensor:
    return torch.where(torch.rand(8, 16) < 0.3, -100, torch.randint(0, 32, (8, 16)))


def test_some_rows_of_labels_hold_one_that_is_ignored_everywhere_or_but_at_one_place() -> None:
    torch.manual_seed(1)
    seen = observed([labels() for _ in range(NUM_DRAWS)])
    for _ in range(5):
        num_kept = (rows_of_asked(labels(), seen, -100) != -100).sum(-1)
        assert bool((num_kept == 0).any())
        assert bool((num_kept == 1).any())
        assert bool((num_kept > 1).any())


def test_labels_of_which_none_is_the_one_that_is_asked_for_stay() -> None:
    declared = torch.randint(0, 32, (8, 16))
    seen = observed([declared, declared.flip(0)])
    assert rows_of_asked(declared, seen, 40) is declared
    assert bool((rows_of_asked(declared, seen, -100) == -100).all(-1).any()), (
        "a mark below zero is asked for all the same"
    )


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ([torch.zeros(4, dtype=torch.int64), torch.zeros(100)], 64),
        ([torch.zeros(4, dtype=torch.int64), torch.zeros(1 << 17)], 12),
        ([[torch.zeros(1000, dtype=torch.bool)]], 12),
        ([torch.zeros(1 << 17, dtype=torch.int32)], NUM_DRAWS),
        ([torch.zeros(4), 3], 1),
    ],
)
def test_few_integers_are_drawn_often_so_that_the_ends_of_their_range_are_seen(inputs: list[Any], wanted: int) -> None:
    assert num_draws(inputs) == wanted


def test_counts_that_are_full_become_fewer_by_any_number_or_by_less_than_half() -> None:
    full = torch.full((64,), 20)
    torch.manual_seed(2)
    (_, any_fewer), (_, little_fewer) = replacements(full)
    assert 1 <= int(any_fewer(full).min()) < 10
    changed = little_fewer(full)
    assert 10 <= int(changed.min()) < int(changed.max()) == 20


def test_booleans_are_asked_for_nothing() -> None:
    mask = torch.rand(32) < 0.5
    assert asked_for(mask, [0, 1, 7]) is mask


def test_each_number_of_a_range_that_is_lacking_is_at_one_place() -> None:
    torch.manual_seed(1)
    draws = [torch.randint(0, 32000, (8, 16)).masked_fill(torch.rand(8, 16) < 0.2, -1) for _ in range(4)]
    changed = with_one_each(draws[0], observed(draws), [-2, -1, 0, 1, 40_000])
    assert [int((changed == number).sum()) for number in (-2, 0, 1, 40_000)] == [0, 1, 1, 0]
    assert int((changed != draws[0]).sum()) == 2
    ordered = [draw.sort(-1).values for draw in draws]
    assert with_one_each(ordered[0], observed(ordered), [0, 1]) is ordered[0]


def test_what_lies_between_labels_and_a_number_for_none_is_no_label() -> None:
    for special, numbers in ((-100, [-101, -99, -1]), (255, [21, 22, 254, 256])):
        draws = [torch.randint(0, 21, (64,)).masked_fill(torch.rand(64) < 0.3, special) for _ in range(4)]
        assert with_one_each(draws[0], observed(draws), numbers) is draws[0]


def test_extremes_of_rows_of_integers_lie_at_both_ends_and_rows_hold_what_they_held() -> None:
    seen = observed([torch.randint(0, 1000, (32, 64)) for _ in range(NUM_DRAWS)])
    for seed in range(10):
        torch.manual_seed(seed)
        value = torch.randint(0, 1000, (32, 64))
        value[:16] = value[:16] % 3  # of which each value is there often
        moved = with_moved_integers(value, seen)
        assert torch.equal(moved.sort(-1).values, value.sort(-1).values)
        assert torch.equal(moved[:16], value[:16])
        for places in (moved[16:].argmax(-1).tolist(), moved[16:].argmin(-1).tolist()):
            assert {0, 63} <= set(places)
    is_sorted = observed([torch.arange(64).expand(4, 64) for _ in range(NUM_DRAWS)])
    assert torch.equal(with_moved_integers(torch.arange(64).expand(4, 64), is_sorted), torch.arange(64).expand(4, 64))


def test_slots_of_a_cache_stay_distinct_but_for_the_value_of_none() -> None:
    torch.manual_seed(1)
    draws = [torch.randperm(256)[:64].masked_fill(torch.rand(64) < 0.3, -1) for _ in range(8)]
    assert observed(draws).distinct
    drawn = redrawn_integers(draws[0], observed(draws))
    assert len(torch.unique(drawn[drawn >= 0])) == int((drawn >= 0).sum())
    assert not observed([torch.randint(-1, 20, (64,)) for _ in range(8)]).distinct
