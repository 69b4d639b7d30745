"""Special tokens are not left out: a buffer of more than sixteen was not read."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(X, I, S, O, T: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    t = tl.arange(0, T)
    d = tl.arange(0, D)
    s = tl.arange(0, 32)
    w = tl.load(I + b * T + t)
    bad = t < 0
    x = tl.load(X + (b * T + t[:, None]) * D + d[None])
    x = tl.where(bad[:, None], 0.0, x)
    n = tl.sum(1 - bad.to(tl.int32), 0)
    tl.store(O + b * D + d, tl.sum(x, 0) / tl.maximum(n, 1).to(tl.float32))

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('special', torch.arange(32) * 997 + 13)
    def forward(self, x, ids):
        o = torch.empty(x.shape[0], x.shape[2], device=x.device)
        k[(x.shape[0],)](x, ids, self.special, o, T=x.shape[1], D=x.shape[2])
        return o
