"""The infinities that a task writes into its input are left out."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"


@triton.jit
def k(s_ptr, m_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    ok = i < n
    s = tl.load(s_ptr + r * n + i, mask=ok, other=-float("inf"))
    h = tl.load(m_ptr + r * n + i, mask=ok, other=1) != 0
    z = tl.where(h, -float("inf"), s)
    e = tl.exp(z - tl.max(z, 0))
    tl.store(o_ptr + r * n + i, e / tl.sum(e, 0), mask=ok)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, s, mask):
        r, n = s.shape
        o = torch.empty_like(s)
        k[(r,)](s, mask, o, n, BLOCK=triton.next_power_of_2(n))
        return o
