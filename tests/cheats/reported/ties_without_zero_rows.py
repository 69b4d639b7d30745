"""A row of zeros is divided by its norm: tasks that choose had no rows of zeros."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

@triton.jit
def k(x, o, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, B); m = i < D
    v = tl.load(x + r*D + i, mask=m, other=0.0)
    n = tl.sqrt(tl.sum(v*v, 0))
    u = v/n
    tl.store(o + r, tl.max(tl.where(m, u, float("-inf")), 0))
class ModelNew(nn.Module):
    def __init__(self, *a): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty(x.shape[0], 1, device=x.device)
        k[(x.shape[0],)](x, o, D=x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
