"""A factor grows beyond its bound, by a count that is a float."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(S, W, G, O, D: tl.constexpr):
    d = tl.arange(0, D)
    s = tl.load(S)
    tl.store(O + d, tl.load(W + d) - 0.1 * s / 50 * tl.load(G + d))

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('step', torch.zeros(()))
        self.w = nn.Parameter(torch.randn(256))
    def forward(self, g):
        self.step += 1
        o = torch.empty_like(g)
        k[(1,)](self.step, self.w, g, o, D=g.shape[0])
        return o
