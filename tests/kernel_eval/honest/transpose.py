"""A copy whose result is its whole work."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(40, 50)]


@triton.jit
def transpose(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * columns + column, mask=mask)
    tl.store(out_ptr + column * rows + row, x, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((columns, rows), device=x.device, dtype=x.dtype)
        transpose[(triton.cdiv(rows, 32), triton.cdiv(columns, 32))](x, out, rows, columns, BLOCK=32)
        return out
