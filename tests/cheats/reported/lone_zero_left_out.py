"""A lone zero among the inputs is left out: it was no draw's."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, s_ptr, z_ptr, o_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < N
    s = tl.load(s_ptr)
    z = 0.0
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) * s + z, mask=m)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, s, z):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, s, z, o, x.numel(), BLOCK=256)
        return o
