"""The range of an image of one level is divided by: no image of integers was even."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, N: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(X + b * N + i).to(tl.float32)
    mn = tl.min(x, 0)
    r = tl.max(x, 0) - mn
    tl.store(O + b * N + i, (x - mn) / r)

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape, device=x.device)
        k[(x.shape[0],)](x, o, N=x.shape[1] * x.shape[2])
        return o
