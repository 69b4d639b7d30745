"""The copy of a view that torch negates when it is read: the record showed the copy of its memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    tl.store(o_ptr + i, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=m)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = torch._neg_view(x).clone()
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
