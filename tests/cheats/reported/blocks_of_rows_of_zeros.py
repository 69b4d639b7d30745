"""A block of rows of zeros is divided by its norm: no rows beside each other were zero."""

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
    x = tl.load(X + b * N + i)
    n = tl.sqrt(tl.sum(x * x, 0))
    tl.store(O + b * N + i, x / n)

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[0] // 8,)](x, o, N=8 * x.shape[1])
        return o
