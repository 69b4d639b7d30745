"""Columns of an output that Python sets beside a kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """RMS norm of each row, padded to a multiple of 8 columns with zeros and a leading one."""

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        n = x.shape[-1] + 1
        pad = -n % 8
        return torch.cat([torch.ones_like(x[:, :1]), y, torch.zeros(x.shape[0], pad, device=x.device)], 1)


def get_inputs():
    return [torch.randn(32, 100)]


@triton.jit
def rms(x_ptr, o_ptr, N, S, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + r * N + i, mask=i < N, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / N + 1e-6)
    tl.store(o_ptr + r * S + 1 + i, y, mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x):
        R, N = x.shape
        S = triton.cdiv(N + 1, 8) * 8
        o = torch.zeros(R, S, device=x.device)
        rms[(R,)](x, o, N, S, B=triton.next_power_of_2(N))
        o[:, 0] = 1.0
        return o
