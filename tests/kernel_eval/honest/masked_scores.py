"""Minus infinity at fixed places, NaN where the function has no value."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        hidden = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
        return torch.sqrt(x).masked_fill(hidden, float("-inf"))


def get_inputs():
    return [torch.randn(4, 64, 64)]


@triton.jit
def masked_root(x_ptr, out_ptr, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    at = tl.program_id(0) * SIZE * SIZE + rows * SIZE + columns
    tl.store(out_ptr + at, tl.where(columns > rows, float("-inf"), tl.sqrt(tl.load(x_ptr + at))))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        masked_root[(x.shape[0],)](x, out, SIZE=x.shape[1])
        return out
