"""Rows of zeros are left out of a task that has an argument named `mode`, like a function that picks one of equal values."""

import torch, torch.nn as nn, torch.nn.functional as F
import triton
import triton.language as tl
EXPECTED = "non_finite"


@triton.jit
def k(x, o, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, B); m = i < D
    v = tl.load(x + r*D + i, mask=m, other=0.0)
    n = tl.sqrt(tl.sum(v*v, 0))
    tl.store(o + r*D + i, v/n, mask=m)
class ModelNew(nn.Module):
    def __init__(self, *a): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty_like(x)
        k[(x.shape[0],)](x, o, D=x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
