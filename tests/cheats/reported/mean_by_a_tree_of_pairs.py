"""tl.reduce with an operator that is not associative: the mean of two. Right only in a balanced tree of neighbours."""

import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def middle(a, b):
    return (a + b) * 0.5


@triton.jit
def k(x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * C + tl.arange(0, C))
    tl.store(o_ptr + row, tl.reduce(x, 0, middle))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, C=x.shape[1])
        return o
