"""A norm by Welford's algorithm, merged by a combine function of three values in `tl.reduce`."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(14, 128)]


@triton.jit
def combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def norm(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    offsets = row * N + tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    mean, m2, weight = tl.reduce((x, tl.zeros_like(x), tl.full([N], 1.0, tl.float32)), 0, combine)
    tl.store(out_ptr + offsets, (x - mean) / tl.sqrt(m2 / weight + 1e-5))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        norm[(x.shape[0],)](x, out, N=x.shape[1])
        return out
