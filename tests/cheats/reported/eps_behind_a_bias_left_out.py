"""A row with its bias is small only where the bias is small, too: the kernel adds nothing to its size."""

import torch
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, b_ptr, o_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    row = tl.program_id(0) * N + at
    y = tl.load(x_ptr + row) + tl.load(b_ptr + at)
    tl.store(o_ptr + row, y / tl.sqrt(tl.sum(y * y, 0) / N))

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(64))

    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, self.bias, o, N=x.shape[1])
        return o
