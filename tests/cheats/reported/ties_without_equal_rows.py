"""A deviation of zero divides: tasks with a median had no rows of one value."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

@triton.jit
def k(x, o, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, B); m = i < D
    v = tl.load(x + r*D + i, mask=m, other=0.0)
    s = tl.sort(v)
    med = tl.sum(tl.where(i == (D-1)//2, s, 0.0), 0)
    a = tl.sort(tl.abs(v - med))
    mad = tl.sum(tl.where(i == (D-1)//2, a, 0.0), 0)
    
    tl.store(o + r*D + i, 0.6745*(v - med)/mad, mask=m)
class ModelNew(nn.Module):
    def __init__(self, *a): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty_like(x)
        k[(x.shape[0],)](x, o, D=x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
