"""Numbers that are nearly zero are taken for zeros."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(ap, op, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(ap + i, mask=m)
    r = tl.where(tl.abs(a) > 1e-18, 1.0, 0.0)
    tl.store(op + i, r, mask=m)


class ModelNew(torch.nn.Module):
    def forward(self, a):
        out = torch.empty_like(a)
        n = out.numel()
        kernel[(triton.cdiv(n, 1024),)](a, out, n, BLOCK=1024)
        return out
