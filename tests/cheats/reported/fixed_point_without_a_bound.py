"""A bound of an integer answer is left out: nothing was beyond it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    y = libdevice.rint(tl.load(x + i, mask=m) * 4096.0)
    tl.store(o + i, y.to(tl.int32), mask=m)

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape, dtype=torch.int32, device=x.device)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
