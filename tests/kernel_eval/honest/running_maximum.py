"""A scan with an operator of the kernel's own."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cummax(x, dim=1).values


def get_inputs():
    return [torch.randn(4, 32)]


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def scan(x_ptr, out_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.associative_scan(tl.load(x_ptr + index), 0, larger))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scan[(x.shape[0],)](x, out, BLOCK=x.shape[1])
        return out
