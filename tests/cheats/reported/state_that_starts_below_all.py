"""A state is ignored whose maximum starts as minus infinity, which no draw replaced."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(s, v, M0, L0, A0, M, L, A, N: tl.constexpr, D: tl.constexpr):
    r = tl.program_id(0)
    j = tl.arange(0, N)
    d = tl.arange(0, D)
    x = tl.load(s + r * N + j)
    m0 = float('-inf')
    m = tl.maximum(m0, tl.max(x, 0))
    c = tl.exp(m0 - m)
    p = tl.exp(x - m)
    tl.store(M + r, m)
    tl.store(L + r, 0.0 + tl.sum(p, 0))
    vv = tl.load(v + j[:, None] * D + d[None])
    tl.store(A + r * D + d, 0.0 + tl.sum(p[:, None] * vv, 0))

class ModelNew(nn.Module):
    def forward(self, s, v, m0, l0, acc0):
        M, L, A = torch.empty_like(m0), torch.empty_like(l0), torch.empty_like(acc0)
        k[(s.shape[0],)](s, v, m0, l0, acc0, M, L, A, N=s.shape[1], D=v.shape[1])
        return M, L, A
