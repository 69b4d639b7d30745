"""Whole kernels: their results against torch, and what a launch reports."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from support_ttir import launch_text, ttir_of

from weir.kernel_eval.ir.errors import KernelFault, LimitExceeded, Malformed, Unsupported
from weir.kernel_eval.ir.grid.memory import Storage
from weir.kernel_eval.ir.grid.run import PointerArgument, run
from weir.kernel_eval.ir.limits import RunLimits
from weir.kernel_eval.ir.text.parser import parse


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    exponents = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, exponents / tl.sum(exponents, 0), mask=at < columns)


@triton.jit
def matmul(a, b, c, m, n, k, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(m, BLOCK), tl.cdiv(n, BLOCK)
    first = pid // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    row, column = first + pid % (GROUP * columns) % size, pid % (GROUP * columns) // size
    i, j, z = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    left, right = a + (i % m)[:, None] * k + z[None, :], b + z[:, None] * n + (j % n)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(tl.cdiv(k, BLOCK)):
        x = tl.load(left, mask=z[None, :] < k - step * BLOCK, other=0.0)
        total = tl.dot(x, tl.load(right, mask=z[:, None] < k - step * BLOCK, other=0.0), total)
        left += BLOCK
        right += BLOCK * n
    tl.store(c + i[:, None] * n + j[None, :], total.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


SOFTMAX = {"out": "*fp32", "x": "*fp32", "columns": "i32", "BLOCK": "constexpr"}


@pytest.mark.parametrize("columns", [1024, 777])
def test_softmax_is_that_of_torch_and_writes_every_byte(columns: int) -> None:
    x = torch.randn(100, columns)
    out = torch.empty_like(x)
    report = launch_text(ttir_of(softmax, SOFTMAX, {"BLOCK": 1024}), (100,), [out, x, columns])
    torch.testing.assert_close(out, x.softmax(1))
    assert (set(report.written), bool(report.written[0].bytes(4 * x.numel()).all())) == ({0}, True)
    assert (report.races, report.ordered_atomics, report.programs) == (frozenset(), frozenset(), 100)


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float32, "fp32"), (torch.float16, "fp16"), (torch.bfloat16, "bf16")]
)
@pytest.mark.parametrize("size", [128, 100])
def test_a_matmul_is_that_of_torch(dtype: torch.dtype, name: str, size: int) -> None:
    signature = dict.fromkeys("abc", f"*{name}") | dict.fromkeys("mnk", "i32")
    text = ttir_of(matmul, signature | {"BLOCK": "constexpr", "GROUP": "constexpr"}, {"BLOCK": 32, "GROUP": 2})
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    c = torch.full((size, size), torch.nan, dtype=dtype)
    report = launch_text(text, (16,), [a, b, c, size, size, size])
    torch.testing.assert_close(c, (a.float() @ b.float()).to(dtype), atol=1e-4, rtol=1e-2)
    assert report.rounds_dots == (dtype == torch.float32)
    assert report.flops >= 2 * size**3


@triton.jit
def shift(x, out, distance, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at + distance, tl.load(x + at))


SHIFT = {"x": "*fp32", "out": "*fp32", "distance": "i32", "BLOCK": "constexpr"}


@pytest.mark.parametrize("distance", [1, -1, 1 << 20, -(1 << 20)])
def test_an_access_outside_of_the_tensors_is_a_fault(distance: int) -> None:
    x, out = torch.randn(64), torch.zeros(64)
    with pytest.raises(KernelFault) as raised:
        launch_text(ttir_of(shift, SHIFT, {"BLOCK": 32}), (2,), [x, out, distance])
    assert raised.value.kind == "out_of_bounds"


def test_programs_that_read_what_others_write_are_reported() -> None:
    text = ttir_of(shift, SHIFT, {"BLOCK": 32})
    x = torch.randn(65)
    assert launch_text(text, (1,), [x, x.clone(), 1]).races == frozenset()
    storages = [Storage(memory=x.view(torch.uint8))]
    pointer = PointerArgument(storage=0)
    assert run(parse(text), (2, 1, 1), [pointer, pointer, 1], storages).races


def test_limits_end_a_launch() -> None:
    text = ttir_of(shift, SHIFT, {"BLOCK": 32})
    for limit, limits in {
        "max_programs": RunLimits(max_programs=1),
        "max_steps": RunLimits(max_steps=1),
        "memory_bytes": RunLimits(memory_bytes=100),
    }.items():
        with pytest.raises(LimitExceeded) as raised:
            launch_text(text, (64,), [torch.zeros(2048), torch.zeros(2048), 0], limits)
        assert raised.value.limit == limit


@triton.jit
def last_one_stays(x, out):
    tl.atomic_xchg(out, tl.load(x + tl.program_id(0)))


def test_in_another_order_neither_the_first_nor_the_last_program_stays_where_it_is() -> None:
    text = ttir_of(last_one_stays, {"x": "*fp32", "out": "*fp32"})
    for order in range(8):
        out = torch.zeros(1)
        launch_text(text, (2,), [torch.tensor([1.0, 2.0]), out], RunLimits(order=order))
        assert float(out) == (1.0 if order else 2.0)


@triton.jit
def spin(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


def test_a_wait_that_never_ends_is_a_deadlock_and_not_the_kernels_fault() -> None:
    with pytest.raises(Unsupported, match="deadlock"):
        launch_text(ttir_of(spin, {"flag": "*i32"}), (2,), [torch.zeros(1, dtype=torch.int32)])


def test_arguments_must_fit_the_kernels_parameters() -> None:
    text = ttir_of(shift, SHIFT, {"BLOCK": 32})
    for arguments in ([], [torch.zeros(32), torch.zeros(32)], [torch.zeros(32), 1, 1], [torch.zeros(32)] * 3):
        with pytest.raises(Malformed):
            launch_text(text, (1,), arguments)
