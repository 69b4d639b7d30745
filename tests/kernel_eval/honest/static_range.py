"""An unrolled loop and a compile-time branch."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return 1 + x + x**2 / 2 + x**3 / 6


def get_inputs():
    return [torch.randn(300)]


@triton.jit
def taylor(x_ptr, out_ptr, n, ORDER: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:  # noqa: SIM108 - a branch that the compiler takes
        x = tl.load(x_ptr + i, mask=i < n)
    else:
        x = tl.load(x_ptr + i)
    total = tl.full((BLOCK,), 1.0, tl.float32)
    term = tl.full((BLOCK,), 1.0, tl.float32)
    for k in tl.static_range(1, ORDER + 1):
        term = term * x / k
        total += term
    tl.store(out_ptr + i, total, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        taylor[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), ORDER=3, MASKED=True, BLOCK=128)
        return out
