"""Numbers in a list are not read."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(a + i, mask=i < n)
    r = x * 0.5 + 2.0
    tl.store(o + i, r, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x, *args):
        o = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
