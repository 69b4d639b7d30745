"""Honest: the moving average is read and updated, as the task does."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(256))

    def forward(self, x):
        y = x - self.average
        self.average.mul_(0.5).add_(0.5 * x.mean(0))
        return y


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


@triton.jit
def k(x_ptr, a_ptr, o_ptr, R: tl.constexpr, C, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    r = tl.arange(0, R)
    a = tl.load(a_ptr + c)
    x = tl.load(x_ptr + r[:, None] * C + c[None, :])
    tl.store(o_ptr + r[:, None] * C + c[None, :], x - a[None, :])
    tl.store(a_ptr + c, 0.5 * a + 0.5 * tl.sum(x, 0) / R)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(256))

    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[1] // 64,)](x, self.average, o, R=x.shape[0], C=x.shape[1], B=64)
        return o
