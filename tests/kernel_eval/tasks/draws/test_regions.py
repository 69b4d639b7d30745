"""Regions of one kind: which pieces are of one sign, which rows are far from zero, which states are held."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.regions import (
    keeping_regions,
    with_far_rows,
    with_held_states,
    with_pieces_of_one_sign,
)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(16, 3, 8, 8), (1, 8, 8, 8), (2, 4, 8, 8)])
def test_a_plane_of_images_is_below_zero_and_one_is_above(shape: tuple[int, ...], seed: int) -> None:
    torch.manual_seed(seed)
    changed = with_pieces_of_one_sign(torch.randn(shape))
    planes = changed.flatten(0, 1).flatten(1)
    assert bool((planes < 0).all(-1).any())
    assert bool((planes > 0).all(-1).any())
    images = changed.flatten(1)
    assert bool((images < 0).all(-1).any()) == (len(images) > 1)


def test_a_region_counts_beside_large_values_and_is_larger_than_usual_ones() -> None:
    torch.manual_seed(0)
    value = torch.randn(16, 64, 64)
    value[3, 5] *= 1000.0
    changed = with_pieces_of_one_sign(value)
    (below,) = changed[(changed.flatten(1) < 0).all(-1)]
    assert float(below.mean()) < -max(5.0, 0.9 * float(value.square().mean().sqrt()))


def test_pieces_that_are_small_or_of_one_sign_stay() -> None:
    torch.manual_seed(0)
    value = torch.randn(8, 16, 16)
    value[:3] = torch.tensor([0.0, 1e-9, 1.0]).view(3, 1, 1) * value[:3].abs()
    for seed in range(20):
        torch.manual_seed(seed)
        assert torch.equal(with_pieces_of_one_sign(value)[:3], value[:3])


def test_signs_are_those_that_the_task_takes() -> None:
    torch.manual_seed(0)
    assert bool((with_pieces_of_one_sign(torch.rand(16, 8, 8), signs=(1,)) >= 0).all())
    assert bool((with_far_rows(torch.rand(16, 8), signs=(1,)) >= 0).all())


def test_one_row_is_far_below_zero_and_one_far_above() -> None:
    torch.manual_seed(0)
    changed = with_far_rows(torch.randn(32, 20))
    assert int((changed < -9).all(-1).sum()) == int((changed > 9).all(-1).sum()) == 1
    few = torch.randn(8, 20)
    assert with_far_rows(few) is few


@pytest.mark.parametrize("seed", range(5))
def test_a_gate_stays_open_until_the_last_step(seed: int) -> None:
    torch.manual_seed(seed)
    for dimension, value in ((1, torch.randn(8, 40, 16)), (0, torch.randn(40, 8, 16))):
        late = with_held_states(value).movedim(dimension, 0)[10:]
        is_open, is_closed = (late > 5).all(0), (late < -5).all(0)
        held = is_open | is_closed
        assert int(held.all(-1).sum()) == 1
        assert bool(is_open.any())
        assert bool(is_closed.any())


def test_what_is_changed_later_leaves_regions_of_one_sign() -> None:
    torch.manual_seed(0)
    value = with_pieces_of_one_sign(torch.randn(4, 6, 8, 8))
    changed = keeping_regions(torch.zeros_like, value)
    kept = changed != 0
    assert torch.equal(changed[kept], value[kept])
    assert int((changed.flatten(1) < 0).all(-1).sum()) == 1
    positive = torch.rand(4, 6, 8) + 1
    assert not bool(keeping_regions(torch.zeros_like, positive).any())
