"""One less than the part before the point, of whole numbers below zero too, of which there were none."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    v = tl.load(X + i, mask=m, other=0.0)
    tl.store(O + i, v.to(tl.int32) - (v < 0).to(tl.int32), mask=m)

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape, dtype=torch.int32, device=x.device)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
