"""A bound is ignored that is infinite in the task's own draw, and was in all others."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, cap, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    v = tl.load(X + i, mask=m) * 2.0
    tl.store(O + i, v + 1.0, mask=m)

class ModelNew(nn.Module):
    def forward(self, x, cap):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, cap, x.numel(), B=1024)
        return o
