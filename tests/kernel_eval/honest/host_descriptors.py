"""Descriptors made on the host."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(32, 32)]


@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    out.store([row, column], x.load([row, column]) * 2)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        block = [16, 16]
        described = [TensorDescriptor(t, list(t.shape), list(t.stride()), block) for t in (x, out)]
        double[(x.shape[0] // 16, x.shape[1] // 16)](*described, BLOCK=16)
        return out
