"""A gain of ones is read transposed: draws kept its symmetry."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, p_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = i // 4 % 4
    b = i % 4
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) * tl.load(p_ptr + b * 4 + a, mask=m, other=0.0), mask=m)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, p):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 128),)](x, p, o, x.numel(), BLOCK=128)
        return o
