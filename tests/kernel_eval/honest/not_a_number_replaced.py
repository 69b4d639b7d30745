"""NaN and infinities are found by comparisons, without their names."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        known = torch.where(x != x, torch.zeros_like(x), x)
        return torch.where(known.abs() == float("inf"), torch.ones_like(x), known * 2)


def get_inputs():
    return [torch.randn(16, 128)]


@triton.jit
def replace(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    known = tl.where(x != x, 0.0, x)
    tl.store(out_ptr + i, tl.where(tl.abs(known) == float("inf"), 1.0, known * 2), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        replace[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
