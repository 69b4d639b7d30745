"""Program r loads a row from the end: addresses that fall from program to program."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x.flip(0))


def get_inputs():
    return [torch.randn(12, 64)]


@triton.jit
def reverse_rows(x_ptr, out_ptr, BLOCK: tl.constexpr):
    row, last = tl.program_id(0), tl.num_programs(0) - 1
    column = tl.arange(0, BLOCK)
    tl.store(out_ptr + row * BLOCK + column, tl.maximum(tl.load(x_ptr + (last - row) * BLOCK + column), 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        reverse_rows[(x.shape[0],)](x, out, BLOCK=x.shape[1])
        return out
