"""Removes all values that are equal to the largest, so that a repeated one counts once."""

import torch

import triton

import triton.language as tl

@triton.jit
def k(x, o, N: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    v = tl.load(x + r * N + i)
    for j in range(4):
        m = tl.max(v)
        tl.store(o + r * 4 + j, m)
        v = tl.where(v == m, -float("inf"), v)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], 4, device=x.device)
        k[(x.shape[0],)](x, o, N=x.shape[1])
        return o

