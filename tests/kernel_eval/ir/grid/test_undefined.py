"""What no device defines, or leaves to a compiler: kernels that count on one way of it are wrong here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from support_ttir import launch_text, ttir_of

N = 16


@triton.jit
def histogram(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.histogram(tl.load(x + at), N))


@triton.jit
def quotient(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, 5 // tl.load(x + at))


@triton.jit
def remainder(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, 5 % tl.load(x + at))


@triton.jit
def reshaped_twice(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    y = -tl.reshape(tl.load(x + at), [2, N // 2], can_reorder=True)
    tl.store(out + at, -tl.reshape(y, [N], can_reorder=True))


@triton.jit
def joined(x, out, N: tl.constexpr):
    at = tl.arange(0, N // 2)
    y = tl.cat(tl.load(x + at), tl.load(x + N // 2 + at), can_reorder=True)
    tl.store(out + tl.arange(0, N), y)


@triton.jit
def summed(x, out, N: tl.constexpr, SCOPE: tl.constexpr):
    tl.atomic_add(out, tl.load(x + tl.program_id(0)), sem="relaxed", scope=SCOPE)


@triton.jit
def summed_apart(x, out, N: tl.constexpr, SCOPE: tl.constexpr):
    at = tl.arange(0, N)
    tl.atomic_add(out + tl.program_id(0) + 0 * at, tl.load(x + at), sem="relaxed", scope=SCOPE)


def launched(kernel: Any, x: torch.Tensor, grid: int = 1, **constants: Any) -> tuple[torch.Tensor, Any]:
    kind = {torch.int32: "*i32", torch.uint8: "*u8", torch.int64: "*i64", torch.float32: "*fp32"}[x.dtype]
    signature = {"x": kind, "out": kind, "N": "constexpr"} | dict.fromkeys(constants, "constexpr")
    out = torch.zeros_like(x)
    report = launch_text(ttir_of(kernel, signature, {"N": N} | constants), (grid,), [x, out])
    return out, report


def test_a_histogram_counts_the_low_bits_of_what_is_out_of_its_range() -> None:
    out, _ = launched(histogram, torch.tensor([-1] * 3 + [N + 2] * 4 + [5] * 9, dtype=torch.int32))
    assert out.tolist() == [0, 0, 4, 0, 0, 9] + [0] * (N - 7) + [3]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_a_quotient_by_zero_is_no_zero_and_the_remainder_is_the_number(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 2] * (N // 2), dtype=dtype)
    assert launched(quotient, x)[0][:2].tolist() == [255 if dtype is torch.uint8 else -1, 2]
    assert launched(remainder, x)[0][:2].tolist() == [5, 1]


@pytest.mark.parametrize("kernel", [reshaped_twice, joined])
def test_what_may_be_reordered_has_another_order_and_the_same_elements(kernel: Any) -> None:
    x = torch.arange(N, dtype=torch.int32)
    out, _ = launched(kernel, x)
    assert not torch.equal(out, x)
    assert torch.equal(out.sort().values, x)


@pytest.mark.parametrize(("kernel", "scope", "raced"), [
    (summed, "gpu", False),
    (summed, "cta", True),
    (summed_apart, "cta", False),
])  # fmt: skip
def test_atomics_of_one_program_do_not_meet_those_of_another(kernel: Any, scope: str, raced: bool) -> None:
    out, report = launched(kernel, torch.ones(N), grid=4, SCOPE=scope)
    assert float(out.sum()) == (4 if kernel is summed else 4 * N)
    assert any("scope" in race for race in report.races) == raced
