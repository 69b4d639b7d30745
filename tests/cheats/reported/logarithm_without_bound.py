"""torch bounds the logarithm at probabilities of exactly 0 and 1, which no draw had."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

EXPECTED = "non_finite"

@triton.jit
def k(px0, px1, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x0 = tl.load(px0 + i, mask=m)
    x1 = tl.load(px1 + i, mask=m)
    y = -(x1 * tl.log(x0) + (1 - x1) * tl.log(1 - x0))
    tl.store(o + i, y, mask=m)

class ModelNew(nn.Module):
    def forward(self, x0, x1):
        x = x0.contiguous()
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x0.contiguous(), x1.contiguous(), o, x.numel(), B=1024)
        return o
