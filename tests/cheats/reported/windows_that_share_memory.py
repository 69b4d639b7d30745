"""Windows are a view whose elements share memory, where the task's have their own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    tl.store(o_ptr + i, tl.where(x < 0, 0.0, x) * 2, mask=m)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 512),)](x, o, x.numel(), BLOCK=512)
        return o.unfold(1, 8, 1)
