"""A transposed input, read by its strides."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(30, 40).t()]


@triton.jit
def double(x_ptr, out_ptr, rows, columns, x_row, x_column, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + column * x_column, mask=column < columns)
    tl.store(out_ptr + row * columns + column, x * 2, mask=column < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        double[(x.shape[0],)](x, out, x.shape[0], x.shape[1], x.stride(0), x.stride(1), BLOCK=64)
        return out
