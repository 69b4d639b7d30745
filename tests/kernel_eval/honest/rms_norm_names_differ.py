"""Parameters under other names than the reference's, made in the same order."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(features))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(12, 80)]


def get_init_inputs():
    return [80]


@triton.jit
def rms_norm(x_ptr, gain_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + 1e-6)
    tl.store(out_ptr + row * columns + column, x * scale * tl.load(gain_ptr + column, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.rand(features))

    def forward(self, x):
        out = torch.empty_like(x)
        rms_norm[(x.shape[0],)](x, self.gain, out, x.shape[1], BLOCK=128)
        return out
