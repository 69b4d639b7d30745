"""A copy by torch, then a kernel on the copy."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, torch.exp(x) - 1)


def get_inputs():
    return [torch.randn(512)]


@triton.jit
def elu(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(x_ptr + i, tl.where(x > 0, x, tl.exp(x) - 1), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = x.clone()
        elu[(triton.cdiv(x.numel(), 128),)](out, x.numel(), BLOCK=128)
        return out
