"""Rows of integers without votes are divided by zero: none was zero everywhere."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(x, o, D, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * D + i, mask=i < D, other=0).to(tl.int32)
    a = v.to(tl.int8)
    a = tl.where(a < 0, -a, a).to(tl.int8)
    c = tl.sum(a.to(tl.int32), 0)
    tl.store(o + r, tl.sum(v, 0).to(tl.float32) / c.to(tl.float32))

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        D = x.shape[1]
        k[(x.shape[0],)](x, o, D, B=triton.next_power_of_2(D))
        return o
