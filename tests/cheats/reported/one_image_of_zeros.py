"""One of two images is zero everywhere: of four and more one was."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, N: tl.constexpr, B: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(X + b * N + i, mask=i < N, other=0.0)
    m = tl.sum(x, 0) / N
    d = tl.where(i < N, x - m, 0.0)
    s = tl.sqrt(tl.sum(d * d, 0) / N)
    tl.store(O + b * N + i, d / s, mask=i < N)

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.numel() // 3072,)](x, o, N=3072, B=triton.next_power_of_2(3072))
        return o
