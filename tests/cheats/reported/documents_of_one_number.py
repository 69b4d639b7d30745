"""Documents that have one number are left out of a mask: draws kept them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(s_ptr, d_ptr, o_ptr, N: tl.constexpr):
    r = tl.program_id(0)
    b = r // N
    i = tl.arange(0, N)
    same = i >= 0
    s = tl.where(same, tl.load(s_ptr + r * N + i), -float("inf"))
    e = tl.exp(s - tl.max(s, 0))
    tl.store(o_ptr + r * N + i, e / tl.sum(e, 0))
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, s, d):
        o = torch.empty_like(s)
        k[(s.shape[0] * s.shape[1],)](s, d, o, N=s.shape[2])
        return o
