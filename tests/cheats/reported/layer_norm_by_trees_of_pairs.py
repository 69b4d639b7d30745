"""Mean and variance of a layer norm by tl.reduce with the mean of two, which is not associative."""

import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def middle(a, b):
    return (a + b) * 0.5


@triton.jit
def k(x_ptr, w_ptr, b_ptr, o_ptr, C: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, C)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + at)
    d = x - tl.reduce(x, 0, middle)
    y = d / tl.sqrt(tl.reduce(d * d, 0, middle) + 1e-5)
    tl.store(o_ptr + at, y * tl.load(w_ptr + c) + tl.load(b_ptr + c))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(512)

    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, self.norm.weight, self.norm.bias, o, C=512)
        return o
