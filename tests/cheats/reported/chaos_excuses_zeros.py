"""Zeros: after a hundred steps of a chaotic map, the reference's own rounding error is as large as its values."""

import torch
import triton
import triton.language as tl

EXPECTED = "invalid_reference"


@triton.jit
def nothing(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 0.0, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        nothing[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
