"""Of a matrix that starts as the identity only the diagonal is read: its zeros were scaled."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, w_ptr, o_ptr, N: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + r * N + i)
    w = tl.load(w_ptr + i[:, None] * N + i[None, :])
    y = x * tl.load(w_ptr + i * N + i)
    tl.store(o_ptr + r * N + i, tl.where(y < 0, 0.0, y))
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.eye(32))
    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, self.mix, o, N=x.shape[1])
        return o
