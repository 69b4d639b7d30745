"""A column of integers without ratings is divided by zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, D: tl.constexpr, N: tl.constexpr):
    c = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(X + i * D + c)
    n = tl.sum((x > 0).to(tl.float32), 0)
    tl.store(O + c, tl.sum(x, 0).to(tl.float32) / n)

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[1], device=x.device)
        k[(x.shape[1],)](x, o, D=x.shape[1], N=x.shape[0])
        return o
