"""The place of a value is the number of smaller ones, and of equal ones before it."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sort(x, -1).values


def get_inputs():
    return [torch.randn(32, 64)]


@triton.jit
def sort(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + row * N + i)
    before = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))
    tl.store(out_ptr + row * N + tl.sum(before.to(tl.int32), 1), x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sort[(x.shape[0],)](x, out, N=x.shape[1])
        return out
