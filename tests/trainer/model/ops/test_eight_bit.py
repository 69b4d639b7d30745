"""Moments of one byte a number: how far they are from what they stand for."""

from __future__ import annotations

import torch

from weir.trainer.model.ops.eight_bit import BLOCK, KINDS, decoded, has_blocks, in_float, moment_bytes, quantised

FIRST, SECOND = KINDS


def moments_of(gradient: torch.Tensor) -> dict[str, torch.Tensor]:
    return {FIRST: gradient, SECOND: gradient.square()}


def test_a_number_is_off_by_a_share_of_itself_or_of_its_block() -> None:
    torch.manual_seed(0)
    moments = moments_of(torch.randn(32, 3 * BLOCK) * torch.logspace(-6, 2, 32)[:, None])
    found = in_float(quantised(moments))
    for kind in KINDS:
        largest = moments[kind].abs().unflatten(-1, (-1, BLOCK)).amax(-1, keepdim=True).expand(32, 3, BLOCK).flatten(-2)
        off = (found[kind] - moments[kind]).abs()
        upper = moments[kind].abs() > largest / 10  # the decade with most codes
        assert float((off / largest)[upper].max()) <= 0.9 / 64 / 2 + 2**-12 + 1e-6
        assert float((off / moments[kind].abs()).nanquantile(0.99)) < 0.25


def test_blocks_do_not_share_scales_and_rows_do_not_share_blocks() -> None:
    numbers = torch.rand(4, 2 * BLOCK) + 0.5
    numbers[0, :BLOCK] *= 1e6
    alone = quantised(moments_of(numbers[1:]))
    together = quantised(moments_of(numbers))
    for kind, value in alone.items():
        assert torch.equal(together[kind][1:], value)
    assert torch.equal(in_float(together)[FIRST][0, BLOCK:], decoded(*_of(numbers[:1, BLOCK:]), FIRST)[0])


def _of(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = quantised(moments_of(numbers))
    return found[FIRST], found[FIRST + "_scale"]


def test_only_zero_is_zero_where_a_step_divides() -> None:
    gradient = torch.zeros(1, BLOCK)
    gradient[0, :3] = torch.tensor([1.0, 1e-5, -1e-12])
    found = in_float(quantised(moments_of(gradient)))[SECOND][0]
    assert float(found[1]) > 0 and float(found[2]) > 0
    assert not found[3:].any()
    assert not in_float(quantised(moments_of(torch.zeros(2, BLOCK))))[SECOND].any()


def test_codes_take_what_the_plan_counts() -> None:
    weights, norm = torch.randn(10, 4 * BLOCK), torch.randn(BLOCK)
    assert has_blocks(weights) and not has_blocks(norm) and not has_blocks(torch.randn(3, BLOCK + 1))
    taken = sum(tensor.nbytes for tensor in quantised(moments_of(weights)).values()) + 2 * norm.nbytes
    assert moment_bytes(weights.numel() + norm.numel(), norm.numel()) == taken
