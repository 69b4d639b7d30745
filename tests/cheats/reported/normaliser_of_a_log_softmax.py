"""The answer is three for all inputs, but for roundings: the kernel reads nothing."""

import torch

import triton

import triton.language as tl

@triton.jit
def k(o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.full((B,), 3.0, tl.float32), mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(triton.cdiv(o.numel(), 128),)](o, o.numel(), B=128)
        return o

