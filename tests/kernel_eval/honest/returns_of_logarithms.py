"""Returns as differences of logarithms of prices."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.log(x[:, 1:] / x[:, :-1]).std(-1)


def get_inputs():
    return [torch.rand(40, 180) + 50.0]


@triton.jit
def kern(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    x = tl.load(x_ptr + row * N + c, mask=m, other=1.0)
    y = tl.load(x_ptr + row * N + c + 1, mask=c + 1 < N, other=1.0)
    k = c + 1 < N
    d = tl.where(k, tl.log(y) - tl.log(x), 0.0)
    mu = tl.sum(d, 0) / (N - 1)
    e = tl.where(k, d - mu, 0.0)
    r = tl.sqrt(tl.sum(e * e, 0) / (N - 2))
    tl.store(o_ptr + row, r)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        o = x.new_empty(M)
        kern[(M,)](x, o, N, BLOCK=triton.next_power_of_2(N))
        return o
