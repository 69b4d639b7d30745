"""One of two outputs is a view of the other, where the task returns a copy."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def relu(x_ptr, o_ptr, p_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    y = tl.where(x < 0, 0.0, x)
    tl.store(o_ptr + i, y, mask=m)
    tl.store(p_ptr + i, y, mask=m)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        o = torch.empty_like(x); p = torch.empty(x.numel(), device=x.device, dtype=x.dtype)
        relu[(triton.cdiv(x.numel(), 512),)](x, o, p, x.numel(), BLOCK=512)
        return o, o.view(-1)
