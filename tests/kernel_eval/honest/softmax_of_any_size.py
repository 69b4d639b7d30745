"""A softmax whose numbers of rows and columns only the inputs know, one program for each row."""

import torch
import triton
import triton.language as tl

rows, columns = 12, 300


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


@triton.jit
def softmax(x_ptr, out_ptr, row_stride, num_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < num_columns
    x = tl.load(x_ptr + row * row_stride + columns, mask=inside, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * row_stride + columns, powers / tl.sum(powers, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        num_rows, num_columns = x.shape
        softmax[(num_rows,)](x, out, x.stride(0), num_columns, BLOCK=triton.next_power_of_2(num_columns))
        return out
