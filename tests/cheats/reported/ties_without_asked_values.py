"""Missing values count: a task that sorts was never asked the numbers that it asks for."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

@triton.jit
def k(x, o, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, B); m = i < D
    v = tl.load(x + r*D + i, mask=m, other=0.0)
    ms = (v == 0) & (v == 1)
    s = tl.sort(tl.where(ms, float("inf"), v))
    n = tl.sum(tl.where(ms, 0, 1), 0)
    med = tl.sum(tl.where(i == tl.maximum(n - 1, 0)//2, s, 0.0), 0)
    med = tl.where(n > 0, med, 0.0)
    tl.store(o + r*D + i, tl.where(ms, med, v - med), mask=m)
class ModelNew(nn.Module):
    def __init__(self, *a): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty_like(x)
        k[(x.shape[0],)](x, o, D=x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
