"""Padding by torch, which only moves data; then a stencil."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        padded = torch.nn.functional.pad(x, (1, 1))
        return (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3


def get_inputs():
    return [torch.randn(6, 50)]


@triton.jit
def stencil(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    start = x_ptr + row * (columns + 2) + i
    total = tl.load(start, mask=mask) + tl.load(start + 1, mask=mask) + tl.load(start + 2, mask=mask)
    tl.store(out_ptr + row * columns + i, total / 3, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        padded = torch.nn.functional.pad(x, (1, 1)).contiguous()
        out = torch.empty_like(x)
        stencil[(x.shape[0],)](padded, out, x.shape[1], BLOCK=64)
        return out
