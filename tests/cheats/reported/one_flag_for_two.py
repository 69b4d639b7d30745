"""One flag is taken for another: both were turned over together."""

import torch, torch.nn as nn, torch.nn.functional as F
import triton
import triton.language as tl
EXPECTED = "output_mismatch"


@triton.jit
def k(x, o, D: tl.constexpr, E: tl.constexpr, R: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, D)
    j = D - 1 - i if R else i
    v = tl.load(x + r*D + j)
    y = tl.cumsum(v, 0)
    if E:
        y = y - v
    tl.store(o + r*D + j, y)
class ModelNew(nn.Module):
    def forward(self, x, exclusive, reverse):
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, o, D=x.shape[1], E=reverse, R=reverse)
        return o
