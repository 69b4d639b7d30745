"""The lengths are bounded from below, and no draw had a row of zeros: the kernel divides by them."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

EXPECTED = "non_finite"

@triton.jit
def k(px0, px1,  o, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    x0 = tl.load(px0 + r * N + i, mask=m, other=0.0)
    x1 = tl.load(px1 + r * N + i, mask=m, other=0.0)
    tl.store(o + r, tl.sum(x0 * x1) / tl.sqrt(tl.sum(x0 * x0) * tl.sum(x1 * x1)))

class ModelNew(nn.Module):

    def forward(self, x0, x1):
        M, N = x0.shape
        o = torch.empty(M, device=x0.device); k[(M,)](x0, x1, o, N, B=256)
        return o
