"""A tile is loaded from scratch memory by other threads than those that stored it, with no barrier between."""

import torch

import triton

import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def k(x_ptr, s_ptr, o_ptr, nothing, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    x = tl.maximum(tl.load(x_ptr + i * N + j), 0.0)
    tl.store(s_ptr + (i ^ nothing) + (j ^ nothing) * M, x)
    y = tl.load(s_ptr + i + j * M)
    tl.store(o_ptr + i + j * M, y * 2.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        s = torch.empty((x.shape[1], x.shape[0]), device=x.device)
        o = torch.empty((x.shape[1], x.shape[0]), device=x.device)
        k[(1,)](x, s, o, 0, M=x.shape[0], N=x.shape[1])
        return o
