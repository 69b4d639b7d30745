"""Launched from torch.autograd.Function."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.square(x)


def get_inputs():
    return [torch.randn(400)]


@triton.jit
def square(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x * x, mask=i < n)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        square[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        return out

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Square.apply(x)
