"""Leaves out bounds of a sum that no draw of two inputs reached."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def unbounded(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, N)
    s = tl.load(x_ptr + row * N + i) + tl.load(y_ptr + row * N + i)
    tl.store(out_ptr + row * N + i, s - tl.sum(s) / N)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        unbounded[(x.shape[0],)](x, y, out, N=256)
        return out
