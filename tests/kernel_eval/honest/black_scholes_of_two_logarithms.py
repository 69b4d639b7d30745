"""The price of an option, with a difference of logarithms and erfc."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Black-Scholes: price, delta, vega."""

    def forward(self, s, k, t, r, v):
        sq = v * torch.sqrt(t)
        d1 = (torch.log(s / k) + (r + 0.5 * v * v) * t) / sq
        d2 = d1 - sq
        n1, n2 = torch.special.ndtr(d1), torch.special.ndtr(d2)
        disc = torch.exp(-r * t)
        pdf = torch.exp(-0.5 * d1 * d1) / (2 * torch.pi) ** 0.5
        return s * n1 - k * disc * n2, n1, s * pdf * torch.sqrt(t)


def get_inputs():
    n = 700
    return [
        50 + 100 * torch.rand(n),
        50 + 100 * torch.rand(n),
        0.1 + torch.rand(n) * 2,
        0.01 + 0.05 * torch.rand(n),
        0.1 + 0.4 * torch.rand(n),
    ]


@triton.jit
def ncdf(x):
    return 0.5 * tl.extra.libdevice.erfc(-x * 0.7071067811865476)


@triton.jit
def bs(s_ptr, k_ptr, t_ptr, r_ptr, v_ptr, c_ptr, d_ptr, g_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    s = tl.load(s_ptr + i, mask=m, other=1.0)
    k = tl.load(k_ptr + i, mask=m, other=1.0)
    t = tl.load(t_ptr + i, mask=m, other=1.0)
    r = tl.load(r_ptr + i, mask=m, other=0.0)
    v = tl.load(v_ptr + i, mask=m, other=1.0)
    st = tl.sqrt(t)
    sq = v * st
    d1 = (tl.log(s) - tl.log(k) + (r + 0.5 * v * v) * t) / sq
    d2 = d1 - sq
    n1 = ncdf(d1)
    n2 = ncdf(d2)
    tl.store(c_ptr + i, s * n1 - k * tl.exp(-r * t) * n2, mask=m)
    tl.store(d_ptr + i, n1, mask=m)
    tl.store(g_ptr + i, s * tl.exp(-0.5 * d1 * d1) * 0.3989422804014327 * st, mask=m)


class ModelNew(nn.Module):
    def forward(self, s, k, t, r, v):
        c, d, g = (torch.empty_like(s) for _ in range(3))
        n = s.numel()
        bs[(triton.cdiv(n, 256),)](s, k, t, r, v, c, d, g, n, B=256)
        return c, d, g
