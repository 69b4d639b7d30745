"""A mask of integers that are ones is left out: draws kept it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(s_ptr, m_ptr, o_ptr, Q, K, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    ok = i < K
    s = tl.load(s_ptr + r * K + i, mask=ok, other=-float("inf"))
    m = tl.load(m_ptr + (r // Q) * K + i, mask=ok, other=1).to(tl.float32)
    e = tl.exp(s - tl.max(s, 0))
    tl.store(o_ptr + r * K + i, e / tl.sum(e, 0), mask=ok)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, s, m):
        o = torch.empty_like(s)
        B, Q, K = s.shape
        k[(B * Q,)](s, m, o, Q, K, BLOCK=triton.next_power_of_2(K))
        return o
