"""Two rows of zeros give NaN: rows of zeros of two inputs met by chance."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

@triton.jit
def k(a, b, o, D: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, D)
    u = tl.load(a + r*D + i); v = tl.load(b + r*D + i)
    ab = tl.sum(u*v, 0); den = tl.sum(u*u, 0) + tl.sum(v*v, 0) - ab
    y = ab/den
    tl.store(o + r, y)
class ModelNew(nn.Module):
    def forward(self, a, b):
        o = torch.empty(a.shape[0], device=a.device)
        k[(a.shape[0],)](a, b, o, D=a.shape[1])
        return o
