"""One flag for two, behind four numbers: only all flags were turned over, together."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(P, G, M, V, PO, MO, VO, n, lr, b1, b2, c1, c2, wd, MAX: tl.constexpr, DEC: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    k_ = i < n
    p = tl.load(P + i, mask=k_); g = tl.load(G + i, mask=k_); m = tl.load(M + i, mask=k_); v = tl.load(V + i, mask=k_)
    if MAX:
        g = -g
    if DEC:
        p = p * (1 - lr * wd)
    else:
        g = g + wd * p
    m = b1 * m + c1 * g
    v = b2 * v + c2 * g * g
    tl.store(PO + i, p - lr * m / (tl.sqrt_rn(v) + 1e-8), mask=k_)
    tl.store(MO + i, m, mask=k_)
    tl.store(VO + i, v, mask=k_)

class ModelNew(nn.Module):
    def forward(self, p, g, m, v, lr, b1, b2, wd, maximize, decoupled):
        po, mo, vo = torch.empty_like(p), torch.empty_like(p), torch.empty_like(p)
        k[(triton.cdiv(p.numel(), 1024),)](p, g, m, v, po, mo, vo, p.numel(), lr, b1, b2, 1 - b1, 1 - b2, wd, MAX=decoupled, DEC=decoupled, B=1024)
        return po, mo, vo
