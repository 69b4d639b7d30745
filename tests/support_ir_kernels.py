"""Kernels over the operations of Triton's language, with arguments: run as TTIR and in Triton's interpreter.

As a program with TRITON_INTERPRET=1, it writes what Triton's interpreter computes: `support_ir_kernels.py FILE`.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
import triton.language as tl

Case = tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]  # kernel, grid, arguments, constants


@triton.jit
def shapes(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + i[None, :])
    b = tl.trans(a) + tl.broadcast_to(tl.load(x + i)[:, None], (N, N))
    c = tl.reshape(tl.join(a, b), (N, 2 * N))
    d, e = tl.split(tl.reshape(c, (N * N, 2)))
    j = tl.arange(0, N * N)
    tl.store(out + j, d * 2 + e)
    tl.store(out + N * N + tl.arange(0, 2 * N), tl.interleave(tl.load(x + i), tl.load(x + i + N)))
    tl.store(out + 2 * N * N + j, tl.ravel(tl.permute(tl.reshape(a, (N // 2, 2, N)), (2, 0, 1))))


@triton.jit
def sums(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + tl.program_id(0) * N * N + i[:, None] * N + i[None, :])
    p = out + tl.program_id(0) * 16 * N
    tl.store(p + i, tl.sum(a, 0))
    tl.store(p + N + i, tl.sum(a, 1))
    tl.store(p + 2 * N + i, tl.max(a, 0))
    tl.store(p + 3 * N + i, tl.min(a, 1))
    tl.store(p + 4 * N + i, tl.argmax(a, 0))
    tl.store(p + 5 * N + i, tl.argmin(a, 1))
    tl.store(p + 6 * N + i, tl.cumsum(tl.sum(a, 0), 0))
    tl.store(p + 7 * N + i, tl.cumprod(tl.load(x + i), 0))
    tl.store(p + 8 * N + i, tl.cumsum(tl.sum(a, 1), 0, reverse=True))
    tl.store(p + 9 * N, tl.sum(a))
    tl.store(p + 9 * N + 1, tl.xor_sum(tl.max(a.to(tl.int32) * 3 + 1, 1), 0).to(tl.float32))
    m, at = tl.max(a, 1, return_indices=True)
    tl.store(p + 10 * N + i, m + at)


@triton.jit
def first_of(a, b):
    return a


@triton.jit
def times_plus(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def own_operators(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(out + i, tl.associative_scan((a, a * 0.5), 0, times_plus)[1])
    tl.store(out + N + i, tl.associative_scan((a, a * 0.5), 0, times_plus, reverse=True)[0])
    _, total = tl.reduce((a, a * 0.5), 0, times_plus)
    tl.store(out + 2 * N, total)
    tl.store(out + 2 * N + 1, tl.reduce(a, 0, first_of))


@triton.jit
def sorted_rows(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + tl.program_id(0) * N + i)
    tl.store(out + tl.program_id(0) * 2 * N + i, tl.sort(a))
    tl.store(out + tl.program_id(0) * 2 * N + N + i, tl.sort(a, descending=True))


@triton.jit
def gathers(x, index, out, counts, N: tl.constexpr):
    i = tl.arange(0, N)
    at = tl.load(index + i)
    tl.store(out + i, tl.gather(tl.load(x + i), at, 0) + tl.load(x + at))
    tl.store(counts + tl.arange(0, 16), tl.histogram(at, 16))


@triton.jit(noinline=True)
def collatz(n):
    steps = 0
    while n > 1:
        if n % 2 == 0:  # noqa: SIM108
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps, n


@triton.jit
def branches(x, out, n, N: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, N)
    a = tl.load(x + i + pid * N)
    if pid % 3 == 0:
        a = a * 2
        tl.store(out + (pid + 100) * N + i, a)
    elif pid % 3 == 1:
        a = -a
    for k in range(pid, n, 2):
        a += k
        if k % 5 == pid:
            a = a * 0.5
    steps, last = collatz(pid + 1)
    tl.store(out + pid * N + i, a + steps + last)
    if pid > 4:
        return
    tl.store(out + (pid + 50) * N + i, a + tl.num_programs(0))


@triton.jit
def three_axes(out, a, b):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + (x * a + y) * b + z, x * 100 + y * 10 + z + tl.num_programs(1))


@triton.jit
def blocks(x, out, n, m, N: tl.constexpr):
    source = tl.make_block_ptr(x, (n, m), (m, 1), (0, 0), (N, N), (1, 0))
    target = tl.make_block_ptr(out, (n, m), (m, 1), (0, 0), (N, N), (1, 0))
    for _ in range(2):
        a = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, a * 2, boundary_check=(0, 1))
        source, target = tl.advance(source, (0, N)), tl.advance(target, (0, N))


@triton.jit
def descriptors(x, out, n, m, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n, m], [m, 1], [N, N])
    target = tl.make_tensor_descriptor(out, [n, m], [m, 1], [N, N])
    a = source.load([0, N])
    target.store([0, N], a + 1)
    target.store([0, 0], source.load([N // 2, 0]))


@triton.jit
def dots(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i[:, None] * N + i[None, :]), tl.load(b + i[:, None] * N + i[None, :])
    total = tl.dot(x, y, input_precision="ieee")
    total = tl.dot(x, tl.trans(y), total, input_precision="ieee")
    tl.store(c + i[:, None] * N + i[None, :], total)


@triton.jit
def random_numbers(out, seed, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(out + i + 8 * N, tl.randn(seed, i))
    tl.store(out + i + 16 * N, tl.randint(seed, i).to(tl.float32))


@triton.jit
def atomics(x, out, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    a = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + a % 4, a, mask=i < n)
    tl.atomic_max(out + 4 + a % 4, a)
    tl.atomic_min(out + 8 + a % 4, a)
    tl.atomic_and(out + 12 + a * 0, a | 1)
    tl.atomic_or(out + 13 + a * 0, a)
    tl.atomic_xor(out + 14 + a * 0, a)
    tl.atomic_add(out + 16, 1)


@triton.jit
def integers(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + N + i, a - b)
    tl.store(out + 2 * N + i, a * b)
    tl.store(out + 3 * N + i, a // b)
    tl.store(out + 4 * N + i, a % b)
    tl.store(out + 5 * N + i, (a & b) | (a ^ b))
    tl.store(out + 6 * N + i, a << (b & 7))
    tl.store(out + 7 * N + i, a >> (b & 7))
    tl.store(out + 8 * N + i, tl.where(a < b, ~a, b + 1))
    tl.store(out + 9 * N + i, tl.minimum(a, b) - tl.maximum(a, 3))
    tl.store(out + 10 * N + i, (a <= b).to(a.dtype) + (a == b).to(a.dtype) + (a != 1).to(a.dtype))
    tl.store(out + 11 * N + i, a.to(tl.int8).to(a.dtype))
    tl.store(out + 12 * N + i, a.to(tl.uint16).to(a.dtype))
    tl.store(out + 13 * N + i, a.to(tl.float32).to(a.dtype))
    tl.store(out + 14 * N + i, (a > b).to(a.dtype) * (a >= b).to(a.dtype))


@triton.jit
def floats(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b * 2)
    tl.store(out + N + i, a / b)
    tl.store(out + 2 * N + i, a % b)
    tl.store(out + 3 * N + i, tl.where(a > b, a, -b))
    tl.store(out + 4 * N + i, tl.minimum(a, b) + tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 5 * N + i, tl.abs(a) + (a * 100).to(tl.int32) + (a >= b).to(tl.float32))
    tl.store(out + 6 * N + i, tl.clamp(a, -0.5, 0.5) + (a != b).to(tl.int8))
    tl.store(out + 7 * N + i, (tl.abs(a) * 50).to(tl.uint8))
    tl.store(out + 8 * N + i, a.to(tl.float16).to(tl.float32) + b.to(tl.float64))


@triton.jit
def functions(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    p = tl.abs(a) + 0.1
    tl.store(out + i, tl.exp(a) + tl.exp2(a))
    tl.store(out + N + i, tl.log(p) - tl.log2(p))
    tl.store(out + 2 * N + i, tl.sin(a) * tl.cos(a))
    tl.store(out + 3 * N + i, tl.sqrt(p) + tl.rsqrt(p))
    tl.store(out + 4 * N + i, tl.erf(a))
    tl.store(out + 5 * N + i, tl.floor(a) - tl.ceil(a * 3))
    tl.store(out + 6 * N + i, tl.sigmoid(a))
    tl.store(out + 7 * N + i, tl.fma(a, p, a))
    tl.store(out + 8 * N + i, tl.sqrt_rn(p) + tl.div_rn(a, p))
    tl.store(out + 9 * N + i, tl.softmax(a))
    tl.store(
        out + 10 * N + i, tl.umulhi(tl.abs(a * 1e9).to(tl.uint32), 0xCAFE1234 + (i * 0).to(tl.uint32)).to(tl.float32)
    )


def cases() -> dict[str, Case]:
    """All kernels with arguments; the same ones in every process."""
    torch.manual_seed(0)
    zeros = torch.zeros
    whole = torch.randint(-100, 100, (64,))
    other = torch.where(whole == 0, 3, torch.randint(1, 60, (64,)))
    n = {"N": 16}
    made: dict[str, Case] = {
        "shapes": (shapes, (1,), [torch.randn(256), zeros(768)], n),
        "sums": (sums, (3,), [torch.randn(3, 256) * 2, zeros(3, 256)], n),
        "own_operators": (own_operators, (1,), [torch.rand(64), zeros(256)], {"N": 64}),
        "sorted_rows": (sorted_rows, (4,), [torch.randn(4, 32), zeros(4, 64)], {"N": 32}),
        "sorted_integers": (sorted_rows, (1,), [whole.int(), zeros(128, dtype=torch.int32)], {"N": 64}),
        "gathers": (gathers, (1,), [torch.randn(64), (whole % 16).int(), zeros(64), zeros(16).int()], {"N": 64}),
        "branches": (branches, (9,), [torch.randn(9, 16), zeros(120, 16), 12], n),
        "three_axes": (three_axes, (3, 4, 5), [zeros(60), 4, 5], {}),
        "blocks": (blocks, (1,), [torch.randn(12, 28), zeros(12, 28), 12, 28], n),
        "descriptors": (descriptors, (1,), [torch.randn(20, 32), zeros(20, 32), 20, 32], n),
        "dots": (dots, (1,), [torch.randn(32, 32), torch.randn(32, 32), zeros(32, 32)], {"N": 32}),
        "half_dots": (dots, (1,), [torch.randn(32, 32).half(), torch.randn(32, 32).half(), zeros(32, 32)], {"N": 32}),
        "random_numbers": (random_numbers, (4,), [zeros(24 * 64), 1234], {"N": 64}),
        "atomics": (atomics, (4,), [whole.abs().int(), zeros(32, dtype=torch.int32), 60], n),
        "functions": (functions, (1,), [torch.randn(64), zeros(11, 64)], {"N": 64}),
        "floats": (floats, (1,), [torch.randn(64), torch.randn(64), zeros(9, 64)], {"N": 64}),
        "doubles": (
            floats,
            (1,),
            [torch.randn(64).double(), torch.randn(64).double(), zeros(9, 64).double()],
            {"N": 64},
        ),
        "halves": (floats, (1,), [torch.randn(64).half(), torch.randn(64).half(), zeros(9, 64).half()], {"N": 64}),
    }
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        a, b = whole.to(dtype), other.to(dtype)
        made[f"integers_{str(dtype)[6:]}"] = (integers, (1,), [a, b, zeros(15, 64, dtype=dtype)], {"N": 64})
    return made


def interpret() -> dict[str, list[torch.Tensor]]:
    """The tensors of every case after Triton's interpreter ran it."""
    results = {}
    for name, (kernel, grid, arguments, constants) in cases().items():
        kernel[grid](*arguments, **constants)
        results[name] = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return results


if __name__ == "__main__":
    torch.save(interpret(), sys.argv[1])
