"""Integers are divided by zero, which no device defines: a player gave zero."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, m_ptr, o_ptr, C, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < C
    x = tl.load(x_ptr + r * C + i, mask=m, other=0)
    k = tl.load(m_ptr + r * C + i, mask=m, other=0).to(tl.int64)
    s = tl.sum(x * k, 0)
    c = tl.sum(k, 0)
    q = s // c
    q = tl.where((s - q * c) < 0, q - 1, q)
    tl.store(o_ptr + r, q)

class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        k[(x.shape[0],)](x, mask, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
