"""Inputs whose products with weights are all of one sign."""

from __future__ import annotations

import pytest
import torch

from weir.kernel_eval.tasks.draws.one_sided import one_sided


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_results", [16, 64])
def test_of_some_rows_all_results_are_of_one_sign(num_results: int, seed: int) -> None:
    torch.manual_seed(seed)
    linear = torch.nn.Linear(64, num_results)
    for other in (linear.weight, linear.weight.detach().mT.contiguous()):
        change = one_sided(torch.randn(32, 64), other)
        assert change is not None
        results = linear(change(torch.randn(32, 64)))
        assert int((results > 0).all(-1).sum()) >= 1
        assert int((torch.logsumexp(results, -1) < 0).sum()) >= 3


def test_rows_that_are_not_free_stay() -> None:
    linear, value = torch.nn.Linear(64, 16), torch.randn(32, 64)
    for num_free in (3, 24):
        free = torch.randperm(32) < num_free
        change = one_sided(value, linear.weight, free)
        assert change is not None
        is_other = (change(value) != value).any(-1)
        assert int(is_other.sum()) == min(num_free, 6) and not bool((is_other & ~free).any())


def test_a_corner_of_an_image_gives_all_filters_results_above_zero_and_another_below() -> None:
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(4, 16, 3)
    change = one_sided(torch.randn(8, 4, 12, 12), convolution.weight)
    assert change is not None
    results = convolution(change(torch.randn(8, 4, 12, 12)))
    for corner in (results[..., 0, 0], results[..., -1, -1]):
        assert int((corner > 0).all(-1).sum()) + int((corner < 0).all(-1).sum()) == 1


def test_more_results_than_inputs_and_large_weights_have_no_such_rows() -> None:
    value = torch.randn(32, 8)
    assert one_sided(value, torch.randn(64, 8)) is None
    assert one_sided(value, torch.randn(5, 7)) is None
    assert one_sided(value, value) is None
    assert one_sided(torch.randn(2, 4, 12, 12), torch.randn(16, 4, 3, 3)) is None
    assert one_sided(value, torch.zeros(4, 8)) is None
    assert one_sided(torch.randn(32, 1024), torch.randn(1024, 1024)) is None
