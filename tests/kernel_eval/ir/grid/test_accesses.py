"""What loads, stores and descriptors may name, and what they find where nothing is."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl
from support_ttir import launch, launch_text, ttir_of

from weir.kernel_eval.ir.errors import KernelFault
from weir.kernel_eval.ir.grid.run import DescriptorArgument, PointerArgument


@triton.jit
def described(x, out, offset, stride, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x + offset, [BLOCK, BLOCK], [stride, 1], [BLOCK, BLOCK])
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], source.load([0, 0]))


@pytest.mark.parametrize(
    ("offset", "stride", "aligned"), [(0, 20, True), (4, 16, True), (0, 18, False), (2, 16, False)]
)
def test_a_descriptor_and_its_rows_begin_at_multiples_of_16_bytes(offset: int, stride: int, aligned: bool) -> None:
    x, out = torch.randn(400), torch.zeros(16, 16)
    if aligned:
        launch(described, (1,), [x, out, offset, stride], {"BLOCK": 16})
        assert torch.equal(out, torch.as_strided(x, (16, 16), (stride, 1), offset))
        return
    with pytest.raises(KernelFault) as raised:
        launch(described, (1,), [x, out, offset, stride], {"BLOCK": 16})
    assert raised.value.kind == "misaligned"


@triton.jit
def given(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], x.load([0, 0]))


@pytest.mark.parametrize(
    ("offset", "strides", "aligned"),
    [(16, (16, 1), True), (0, (18, 1), False), (8, (16, 1), False), (0, (16, 4), False)],
)
def test_a_descriptor_of_the_host_is_held_to_the_same(offset: int, strides: tuple[int, int], aligned: bool) -> None:
    text = ttir_of(given, {"x": "tensordesc<fp32[16,16]>", "out": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 16})
    sizes = (16, 16, *strides)
    descriptor = DescriptorArgument(
        pointer=PointerArgument(storage=0, offset=offset), shape=(16, 16), strides=strides, padding="zero"
    )
    if aligned:
        launch_text(text, (1,), [descriptor, *sizes, torch.zeros(400)])
        return
    with pytest.raises(KernelFault) as raised:
        launch_text(text, (1,), [descriptor, *sizes, torch.zeros(400)])
    assert raised.value.kind == "misaligned"


@triton.jit
def masked_sum(x, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n)
    tl.store(out, tl.sum(total, 0))


MASKED = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr", "STAGES": "constexpr"}


def test_where_a_load_is_masked_and_has_no_default_it_finds_zeros() -> None:
    x, out = torch.randn(100), torch.full((1,), torch.nan)
    launch_text(ttir_of(masked_sum, MASKED, {"BLOCK": 64, "STAGES": 1}), (1,), [x, out, 100])
    torch.testing.assert_close(out[0], x.sum())


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_zeros_are_what_nvidias_devices_find_there(capability: int) -> None:
    ptx = ttir_of(masked_sum, MASKED, {"BLOCK": 64, "STAGES": 1}, capability, last="ptx")
    loads = [asm for asm in ptx.split("// begin inline asm") if "ld.global" in asm]
    assert loads
    for load in loads:
        before, after = load.split("ld.global", 1)
        registers = re.findall(r"%\w+", after[: after.index("}")])
        assert registers
        assert all(re.search(rf"mov\.\w+ {register}, 0x0;", before) for register in registers), load


@pytest.mark.parametrize("capability", [80, 90])
def test_a_pipelined_load_copies_the_bytes_that_are_not_masked_and_fills_zeros(capability: int) -> None:
    ptx = ttir_of(masked_sum, MASKED, {"BLOCK": 64, "STAGES": 3}, capability, last="ptx")
    copies = [line for line in ptx.splitlines() if "cp.async.c" in line and "global" in line]
    assert copies
    assert all(re.search(r"\], 0x[0-9a-f]+, %r\d+;", copy) for copy in copies), copies
