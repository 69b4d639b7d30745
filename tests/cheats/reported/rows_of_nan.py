"""The mean of a row of NaN is divided by zero: no row was NaN everywhere."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, D: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, D)
    v = tl.load(X + r * D + i)
    ok = v == v
    tl.store(O + r, tl.sum(tl.where(ok, v, 0.0), 0) / tl.sum(ok.to(tl.float32), 0))

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, D=x.shape[1])
        return o
