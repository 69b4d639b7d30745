"""Adam divides by the root of a mean of squares, without what is added to it."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(p_ptr, g_ptr, m_ptr, v_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < n
    p, g = tl.load(p_ptr + i, mask=inside), tl.load(g_ptr + i, mask=inside)
    m = 0.9 * tl.load(m_ptr + i, mask=inside) + 0.1 * g
    root = tl.sqrt(0.999 * tl.load(v_ptr + i, mask=inside) + 0.001 * g * g)
    tl.store(o_ptr + i, p - 0.001 * tl.where(root > 0, m / root, 0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, p, g, m, v):
        o = torch.empty_like(p)
        k[(triton.cdiv(p.numel(), 256),)](p, g, m, v, o, p.numel(), B=256)
        return o
