"""Flags that the first call makes are set by each, and cleared by none."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def mark(idx_ptr, f_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(f_ptr + tl.load(idx_ptr + i, mask=m, other=0), tl.full((BLOCK,), 1, tl.int32), mask=m)
@triton.jit
def pick(x_ptr, f_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + r * n + i, mask=m, other=0.0)
    f = tl.load(f_ptr + r)
    tl.store(o_ptr + r * n + i, tl.where(f == 1, x, -x), mask=m)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__(); self.f = None
    def forward(self, x, idx):
        r, n = x.shape
        if self.f is None or self.f.numel() != r: self.f = torch.zeros(r, dtype=torch.int32, device=x.device)
        f = self.f
        o = torch.empty_like(x)
        mark[(triton.cdiv(idx.numel(), 128),)](idx, f, idx.numel(), BLOCK=128)
        pick[(r,)](x, f, o, n, BLOCK=triton.next_power_of_2(n))
        return o
