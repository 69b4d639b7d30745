"""A row of labels that are all left out divides by zero: draws without the mark had no such row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"


@triton.jit
def k(x_ptr, l_ptr, o_ptr, T, V, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < V
    acc = 0.0
    cnt = 0.0
    for t in range(T):
        x = tl.load(x_ptr + (b * T + t) * V + i, mask=m, other=-float("inf"))
        l = tl.load(l_ptr + b * T + t)
        use = l != -100
        mx = tl.max(x, 0)
        lse = mx + tl.log(tl.sum(tl.exp(x - mx), 0))
        v = tl.load(x_ptr + (b * T + t) * V + tl.maximum(l, 0))
        acc += tl.where(use, v - lse, 0.0)
        cnt += tl.where(use, 1.0, 0.0)
    tl.store(o_ptr + b, acc / cnt)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, l):
        B, T, V = x.shape
        o = torch.empty(B, device=x.device, dtype=x.dtype)
        k[(B,)](x, l, o, T, V, BLOCK=triton.next_power_of_2(V))
        return o
