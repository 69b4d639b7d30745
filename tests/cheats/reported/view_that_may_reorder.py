"""Reshapes that a compiler may reorder are taken for those in order."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, C, H: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + r * C + i)
    y = tl.reshape(x, [2, H], can_reorder=True)
    e = tl.exp(y - tl.max(y, 1)[:, None])
    e = e / tl.sum(e, 1)[:, None]
    z = tl.reshape(e, [B], can_reorder=True)
    tl.store(o_ptr + r * C + i, z)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, c = x.shape
        o = torch.empty_like(x)
        k[(n,)](x, o, c, H=c // 2, B=c)
        return o
