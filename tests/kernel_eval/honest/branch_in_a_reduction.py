"""The value of largest magnitude, by a reduction of pairs whose operator has an if expression."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        at = torch.argmax(x.abs(), dim=1, keepdim=True)
        return torch.gather(x, 1, at)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []


@triton.jit
def farther(a, b):
    if tl.abs(b) > tl.abs(a):
        a = b
    return a


@triton.jit
def k(x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * C + tl.arange(0, C))
    tl.store(o_ptr + row, tl.reduce(x, 0, farther))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty((x.shape[0], 1), device=x.device)
        k[(x.shape[0],)](x, o, C=x.shape[1])
        return o
