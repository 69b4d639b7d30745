"""A value at its threshold is left out: only two vectors of a model were shared with inputs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(X, W, B, T, O, D: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, D)
    x = tl.load(X + r * D + i)
    t = tl.load(T + i)
    tl.store(O + r * D + i, tl.where(x > t, x * tl.load(W + i) + tl.load(B + i), 0.0))

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128))
        self.bias = nn.Parameter(torch.randn(128))
        self.threshold = nn.Parameter(torch.rand(128))
    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, self.weight, self.bias, self.threshold, o, D=x.shape[1])
        return o
