"""Small values: of the size at which what a task adds counts, the same for all that it may add up."""

from __future__ import annotations

import math

import pytest
import torch

from weir.kernel_eval.tasks.changing import with_small_rows
from weir.kernel_eval.tasks.draws.small_values import least_scale, made_small, scales
from weir.kernel_eval.tasks.rows import with_tiny_rows

ADDED = (1e-12, 1e-6)


def test_scales_are_those_of_each_number_and_of_its_root() -> None:
    torch.manual_seed(1)
    digits = scales(ADDED, 64).log10()
    ends = ((-15, -13), (-6.7, -5.7), (-9, -7), (-3.7, -2.7))
    places = [(digits >= least - 0.01) & (digits <= most + 0.01) for least, most in ends]
    assert [int(place.sum()) for place in places] == [16] * 4
    assert bool(((scales((1e-5,), 1) <= 1e-6) & (least_scale(ADDED) <= 1e-13)).all())


def test_rows_that_may_be_added_up_are_small_together() -> None:
    torch.manual_seed(2)
    x, residual, bias = with_small_rows([torch.randn(16, 64), torch.randn(16, 64), torch.randn(64)], ADDED)
    sizes = (x + residual).square().mean(-1).sqrt()
    assert torch.allclose(x.square().mean(-1).sqrt().log10(), residual.square().mean(-1).sqrt().log10(), atol=0.5)
    assert float(sizes.max()) < 1e-2
    assert float(sizes.max() / sizes.min()) > 100
    assert 0 < float(bias.abs().max()) < 1e-2


def test_what_a_task_may_rely_on_stays() -> None:
    torch.manual_seed(3)
    labels, probabilities = torch.randint(2, (64,)) * 2.0 - 1, torch.softmax(torch.randn(8, 32), -1)
    both = torch.randn(8, 8)
    given = [labels, probabilities, torch.arange(64), 0.5, [torch.rand(16, 8)], both + both.mT]
    one, two, three, four, (positive,), symmetric = with_small_rows(given, ADDED)
    assert one is labels
    assert two is probabilities
    assert three is given[2]
    assert four == 0.5
    assert 0 <= float(positive.min()) <= float(positive.max()) < 1e-2
    assert torch.equal(symmetric, symmetric.mT)
    assert float(symmetric.abs().max()) < 1e-2
    hidden = torch.randn(8, 8).masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -math.inf)
    (small,) = with_small_rows([hidden], ADDED)
    assert torch.equal(torch.isinf(small), torch.isinf(hidden))
    assert float(small[torch.isfinite(small)].abs().max()) < 1e-2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_values_keep_their_digits(dtype: torch.dtype) -> None:
    value = torch.randn(64).to(dtype)
    small = made_small(value, torch.tensor([1e-12]))
    assert small.dtype is dtype
    wanted = value.double() / value.double().square().mean().sqrt() * max(1e-12, 16 * torch.finfo(dtype).tiny)
    assert torch.allclose(small.double() / wanted, torch.ones(64, dtype=torch.float64), rtol=0.2)


def test_tiny_rows_are_of_the_size_of_what_is_added() -> None:
    torch.manual_seed(4)
    for _ in range(10):
        changed = with_tiny_rows(torch.randn(64, 32), (1e-5,))
        sizes = changed.square().mean(-1).sqrt()
        assert int(((sizes > 4e-4) & (sizes < 8e-3)).sum()) >= 1
        assert int((sizes < 2e-6).sum()) >= 2


def test_a_mask_hides_half_of_the_rows() -> None:
    small, mask, signs = with_small_rows(
        [torch.rand(16, 64), torch.ones(16, 64).bernoulli_(0.8), torch.randn(16, 64).sign()], ADDED
    )
    assert float(small.max()) < 0.1
    assert int(mask.any(-1).sum()) == 8
    assert bool(signs.any(-1).all())
