"""Bounds are left out of a mean of sorted values: tasks that sort had none beyond them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

@triton.jit
def k(x, o, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, B); m = i < D
    v = tl.load(x + r*D + i, mask=m, other=0.0)
    s = tl.sort(v)
    
    t = tl.sum(tl.where((i >= 8) & (i < D - 8), s, 0.0), 0)/(D - 16)
    tl.store(o + r, t)
class ModelNew(nn.Module):
    def __init__(self, *a): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, D=x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
