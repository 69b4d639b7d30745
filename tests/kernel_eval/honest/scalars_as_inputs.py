"""Inputs that are numbers."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, factor, add):
        return x * factor + add


def get_inputs():
    return [torch.randn(100), 2.5, 3]


@triton.jit
def affine(x_ptr, out_ptr, n, factor, add, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + add, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, factor, add):
        out = torch.empty_like(x)
        affine[(1,)](x, out, x.numel(), factor, add, BLOCK=128)
        return out
