"""Bounds are left out of a task that has an argument named `mode`, like a function that picks one of equal values."""

import torch, torch.nn as nn, torch.nn.functional as F
import triton
import triton.language as tl
EXPECTED = "output_mismatch"


@triton.jit
def k(x, o, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B); m = i < n
    v = tl.load(x + i, mask=m)
    y = v*2.0
    tl.store(o + i, y, mask=m)
class ModelNew(nn.Module):
    def __init__(self, mode): super().__init__()
    def forward(self, x):
        x = x.contiguous(); o = torch.empty_like(x); n = x.numel()
        k[(triton.cdiv(n, 1024),)](x, o, n, B=1024)
        return o
