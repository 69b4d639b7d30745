"""Writes into its input, as the reference does."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mul_(2).add_(1)


def get_inputs():
    return [torch.randn(512)]


@triton.jit
def double_and_add(x_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i) * 2 + 1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        double_and_add[(x.numel() // 128,)](x, BLOCK=128)
        return x
