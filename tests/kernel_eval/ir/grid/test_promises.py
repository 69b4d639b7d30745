"""What kernels promise to the compiler is compared with the values."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from support_ttir import launch, launch_text, signature_of, ttir_of

from weir.kernel_eval.ir.errors import KernelFault


@triton.jit
def promised(x, out, first, n, stride, HINT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = first + at
    if HINT == "multiple_of":
        here = tl.multiple_of(first + at, 4)
    if HINT == "multiple_of a number":
        here = tl.multiple_of(first * 2, 8) // 2 + at
    if HINT == "multiple_of a pointer":
        x = tl.multiple_of(x + first, 16) - first
    if HINT == "assume":
        tl.assume(first % 4 == 0)
    if HINT == "max_contiguous":
        here = tl.max_contiguous((first + at) % n, BLOCK)
    if HINT == "max_contiguous of rows":
        here = tl.max_contiguous((first + at) % n, BLOCK) * stride
    if HINT == "max_contiguous in a mask":
        here = tl.where(tl.max_contiguous((first + at) % n, BLOCK) < n, here, 0)
        tl.store(out + at, 0.0, mask=tl.max_contiguous((first + at) % n, BLOCK) < n)
    if HINT == "max_constancy":
        here = tl.max_constancy((first + at) // 4, 4)
    tl.store(out + at, tl.load(x + here))


CASES = [
    ("multiple_of", 8, 64, True),
    ("multiple_of", 6, 64, False),
    ("multiple_of a number", 4, 64, True),
    ("multiple_of a number", 6, 64, False),
    ("multiple_of a pointer", 4, 64, True),
    ("multiple_of a pointer", 6, 64, False),
    ("assume", 4, 64, True),
    ("assume", 6, 64, False),
    ("max_contiguous", 6, 64, True),
    ("max_contiguous", 6, 14, False),
    ("max_contiguous of rows", 6, 14, True),  # no rows follow each other in memory, whatever their numbers
    ("max_contiguous in a mask", 6, 14, False),
    ("max_constancy", 4, 64, True),
    ("max_constancy", 6, 64, False),
]


@pytest.mark.parametrize(("hint", "first", "n", "holds"), CASES)
def test_false_promises_are_faults(hint: str, first: int, n: int, holds: bool) -> None:
    arguments = [torch.randn(128), torch.zeros(16), first, n, 2]
    constants = {"HINT": hint, "BLOCK": 16}
    if holds:
        launch(promised, (1,), arguments, constants)
        return
    with pytest.raises(KernelFault) as raised:
        launch(promised, (1,), arguments, constants)
    assert raised.value.kind == "assertion"
    assert hint.split()[0] in str(raised.value)


@triton.jit
def of_some_programs(x, out, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK // 2
    if tl.program_id(0) % 2 == 0:
        tl.assume(first % BLOCK == 0)
        tl.store(out + first + tl.arange(0, BLOCK), tl.load(x + tl.multiple_of(first * 1 + 0, 16)))


def test_only_programs_that_come_to_a_promise_make_it() -> None:
    x, out = torch.randn(64), torch.zeros(64)
    launch(of_some_programs, (4,), [x, out], {"BLOCK": 16})  # of all four, two would break it: they begin at 8 and 24
    assert torch.equal(out, torch.cat([x[0].expand(16), x[16].expand(16), torch.zeros(32)]))


@pytest.mark.parametrize(("number", "holds"), [(32, True), (30, False)])
def test_arguments_are_what_the_kernel_was_compiled_for(number: int, holds: bool) -> None:
    arguments = [torch.randn(128), torch.zeros(16), 0, number, 2]
    constants = {"HINT": "", "BLOCK": 16}
    text = ttir_of(promised, signature_of(promised, arguments, constants), constants)
    assert "%n: i32" in text
    text = text.replace("%n: i32", "%n: i32 {tt.divisibility = 16 : i32}")
    if holds:
        launch_text(text, (1,), arguments)
        return
    with pytest.raises(KernelFault, match="multiple of 16"):
        launch_text(text, (1,), arguments)
