"""Lengths of zero are divided by, which the task bounds by one: no length was zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(X, L, O, T: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    t = tl.arange(0, T)
    d = tl.arange(0, D)
    n = tl.load(L + b)
    x = tl.load(X + (b * T + t[:, None]) * D + d[None])
    x = tl.where(t[:, None] < n, x, 0.0)
    tl.store(O + b * D + d, tl.sum(x, 0) / n.to(tl.float32))

class ModelNew(nn.Module):
    def forward(self, x, lengths):
        o = torch.empty(x.shape[0], x.shape[2], device=x.device)
        k[(x.shape[0],)](x, lengths, o, T=x.shape[1], D=x.shape[2])
        return o
