"""A warm-up is left out of a step for two million elements: its number was never another."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(P, G, O, lr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(O + i, tl.load(P + i, mask=m) - lr * tl.load(G + i, mask=m), mask=m)

class ModelNew(nn.Module):
    def forward(self, p, g, lr, step):
        if step < 100:
            pass
        o = torch.empty_like(p)
        k[(triton.cdiv(p.numel(), 1024),)](p, g, o, lr, p.numel(), B=1024)
        return o
