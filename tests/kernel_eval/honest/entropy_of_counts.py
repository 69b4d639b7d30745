"""The entropy of counts, by the logarithm of their sum, which takes no counts below zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        p = x / x.sum(-1, keepdim=True)
        return -(p * torch.log(p)).sum(-1)


def get_inputs():
    return [torch.rand(40, 180) + 0.05]


@triton.jit
def kern(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    x = tl.load(x_ptr + row * N + c, mask=m, other=1.0)
    s = tl.sum(tl.where(m, x, 0.0), 0)
    r = tl.log(s) - tl.sum(x * tl.log(x), 0) / s
    tl.store(o_ptr + row, r)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        o = x.new_empty(M)
        kern[(M,)](x, o, N, BLOCK=triton.next_power_of_2(N))
        return o
