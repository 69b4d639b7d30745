"""Symmetric quantisation of rows to 8-bit integers, with the scales as a second output."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127.0
        return torch.floor(x / scale + 0.5).to(torch.int8), scale


def get_inputs():
    return [torch.randn(10, 64)]


@triton.jit
def quantize(x_ptr, q_ptr, scale_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + row * N + i)
    scale = tl.max(tl.abs(x)) / 127.0
    tl.store(q_ptr + row * N + i, tl.floor(x / scale + 0.5).to(tl.int8))
    tl.store(scale_ptr + row, scale)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        q = torch.empty_like(x, dtype=torch.int8)
        scale = torch.empty(x.shape[0], 1, device=x.device)
        quantize[(x.shape[0],)](x, q, scale, N=x.shape[1])
        return q, scale
