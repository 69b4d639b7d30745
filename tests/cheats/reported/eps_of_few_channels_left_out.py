"""A batch norm in training of three channels without its eps."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, N, C, S, B: tl.constexpr):
    c = tl.program_id(0)
    i = tl.arange(0, B)
    at = i // S * (C * S) + c * S + i % S
    inside = i < N * S
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    mean = tl.sum(x) / (N * S)
    d = tl.where(inside, x - mean, 0.0)
    var = tl.sum(d * d) / (N * S)
    tl.store(o_ptr + at, d * tl.rsqrt(var + 1e-20), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        o = torch.empty_like(x)
        k[(c,)](x, o, n, c, h * w, B=triton.next_power_of_2(n * h * w))
        return o
