"""The first value above zero of each row by tl.reduce with an operator that does not commute."""

import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def first(a, b):
    return tl.where(a > 0, a, b)


@triton.jit
def k(x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * C + tl.arange(0, C))
    tl.store(o_ptr + row, tl.maximum(tl.reduce(x, 0, first), 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty((x.shape[0], 1), device=x.device)
        k[(x.shape[0],)](x, o, C=x.shape[1])
        return o
