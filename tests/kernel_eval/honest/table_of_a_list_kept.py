"""A table made of Python's numbers in the first call, and kept."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        t = torch.arange(x.shape[-1], device=x.device, dtype=torch.float32) * 0.5
        t[0] = 3.0
        return torch.relu(x * t)


def get_inputs():
    return [torch.randn(32, 128)]


_T = {}


@triton.jit
def k(x_ptr, t_ptr, o_ptr, C, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    t = tl.load(t_ptr + i % C, mask=m)
    tl.store(o_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=m) * t, 0.0), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        C = x.shape[-1]
        if C not in _T:
            t = torch.tensor([3.0] + [0.5 * j for j in range(1, C)], device=x.device)
            _T[C] = t
        t = _T[C]
        k[(triton.cdiv(x.numel(), 256),)](x, t, o, C, x.numel(), B=256)
        return o
