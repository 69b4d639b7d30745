"""NaN are no scores that are left out: tasks that choose had none."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

@triton.jit
def k(x, o, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, B); m = i < D
    v = tl.load(x + r*D + i, mask=m, other=0.0)
    v = tl.where(m, v, float("-inf"))
    v = tl.where(v != v, float("inf"), v)
    a = tl.max(v, 0); p = tl.argmax(v, 0)
    c = tl.max(tl.where(i == p, float("-inf"), v), 0)
    tl.store(o + r*2, a); tl.store(o + r*2 + 1, c)
class ModelNew(nn.Module):
    def __init__(self, *a): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty(x.shape[0], 2, device=x.device)
        k[(x.shape[0],)](x, o, D=x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
