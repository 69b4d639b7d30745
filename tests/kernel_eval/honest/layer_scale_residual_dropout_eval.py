"""Residual with a layer scale and a GELU, in eval mode, by a kernel with a flag."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = torch.nn.Parameter(1e-2 * torch.ones(48))

    def forward(self, x, r):
        return r + self.gamma * torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(10, 48), torch.randn(10, 48)]


def get_init_inputs():
    return []


@triton.jit
def fused(x_ptr, r_ptr, g_ptr, o_ptr, n, C, HAS_GAMMA: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if HAS_GAMMA:
        y *= tl.load(g_ptr + i % C, mask=m)
    tl.store(o_ptr + i, y + tl.load(r_ptr + i, mask=m), mask=m)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = torch.nn.Parameter(1e-2 * torch.ones(48))

    def forward(self, x, r):
        o = torch.empty_like(x)
        n = x.numel()
        fused[(triton.cdiv(n, 256),)](x, r, self.gamma, o, n, x.shape[-1], HAS_GAMMA=self.gamma is not None, BLOCK=256)
        return o
