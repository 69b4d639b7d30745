"""Which rows of large inputs and answers stand for all of them."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.rows import (
    MANY,
    every_nth,
    rows,
    thinned,
    with_nan_row,
    with_one_sign,
    with_tiny_rows,
    with_zero_rows,
    with_zero_tiles,
)


def test_of_few_elements_or_without_common_rows_nothing_is_left_out() -> None:
    large = torch.empty(1).expand(4, MANY)
    assert every_nth([torch.ones(4, 3)], [torch.ones(4)]) is None
    assert every_nth([large], [torch.ones(())]) is None
    assert every_nth([large], [torch.ones(4), torch.ones(5)]) is None
    assert every_nth([5], []) is None
    assert len(thinned(torch.ones(100, 7))) == 100
    assert thinned(torch.ones(())).shape == ()


def test_rows_are_spread_evenly_and_taken_from_every_tensor_that_has_them() -> None:
    large, other = torch.empty(1).expand(64, MANY // 8), torch.arange(64)
    some = every_nth([large, other, torch.ones(3), 2.5], [large])
    assert some is not None
    at, (part, beside, weight, number) = some
    assert beside.tolist() == list(range(0, 64, 32))
    assert (len(part), len(weight), number) == (2, 3, 2.5)
    assert torch.equal(other[at], beside)
    assert len(thinned(large)) == 2


def test_rows_of_another_number_stay() -> None:
    assert rows(torch.arange(5), 4, slice(0, 2)).tolist() == [0, 1, 2, 3, 4]
    assert rows(torch.arange(4), 4, slice(0, 2)).tolist() == [0, 1]
    assert rows("text", 4, slice(0, 2)) == "text"


def test_a_piece_of_one_dimension_is_zeros_or_tiny_as_a_row_is() -> None:
    value = torch.rand(256) + 0.5
    for changed in (with_zero_rows(value), with_tiny_rows(value, (1e-6,))):
        small = changed.view(4, 64).abs().amax(-1) < 1e-2
        assert int(small.sum()) == 1
        assert torch.equal(changed.view(4, 64)[~small], value.view(4, 64)[~small])
    odd = torch.rand(31)
    assert with_zero_rows(odd) is odd
    assert with_tiny_rows(odd) is odd


@pytest.mark.parametrize("dimension", [0, 1, -1])
def test_fibres_of_large_tensors_are_measured_piece_by_piece(dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.randn(12, 10, 8)
    torch.manual_seed(3)
    whole = with_one_sign(value, dimension)
    assert not torch.equal(whole, value)
    monkeypatch.setattr("weir.kernel_eval.tasks.rows._PIECE", 9)
    torch.manual_seed(3)
    assert torch.equal(with_one_sign(value, dimension), whole)


def test_a_tile_and_rows_beside_each_other_are_zeros() -> None:
    zero = with_zero_tiles(torch.randn(64, 64)) == 0
    rows = zero.all(1)
    assert int(rows.sum()) == 8
    assert bool(rows.view(8, 8).all(1).any())
    tiles = zero.view(4, 16, 4, 16).all(3).all(1)
    assert int(tiles.sum()) == 1


def test_one_plane_of_few_images_is_zeros() -> None:
    zero = with_zero_tiles(torch.randn(2, 3, 8, 8)) == 0
    assert int(zero.flatten(2).all(-1).sum()) == 1


def test_one_row_is_nan() -> None:
    assert with_nan_row(torch.randn(16, 8)).isnan().all(1).sum() == 1
    few = torch.randn(2, 8)
    assert torch.equal(with_nan_row(few), few)
