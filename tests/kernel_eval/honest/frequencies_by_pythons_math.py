"""Frequencies of a rotary embedding by Python's math, in a cached function."""

import math
from functools import cache

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Llama-3's scaled rotary embedding, neox style."""

    def __init__(self, dim, base):
        super().__init__()
        self.dim, self.base = dim, base

    def forward(self, x, pos):
        inv = 1.0 / self.base ** (torch.arange(0, self.dim, 2, device=x.device).float() / self.dim)
        wl = 2 * torch.pi / inv
        smooth = ((512 / wl) - 1.0) / (4.0 - 1.0)
        inv = torch.where(wl > 512, inv / 8, torch.where(wl < 128, inv, (1 - smooth) * inv / 8 + smooth * inv))
        f = pos[:, :, None].float() * inv
        c, s = f.cos()[:, :, None], f.sin()[:, :, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)


def get_inputs():
    return [torch.randn(2, 20, 4, 32), torch.arange(20)[None].expand(2, 20).contiguous()]


def get_init_inputs():
    return [32, 10000.0]


@cache
def _inv_freq(dim, base, device):
    inv = []
    for i in range(0, dim, 2):
        f = 1.0 / base ** (i / dim)
        wl = 2 * math.pi / f
        if wl > 512:
            f /= 8
        elif wl >= 128:
            s = (512 / wl - 1) / 3
            f = (1 - s) * f / 8 + s * f
        inv.append(f)
    return torch.tensor(inv, dtype=torch.float32, device=device)


@triton.jit
def rope(x_ptr, p_ptr, f_ptr, o_ptr, H: tl.constexpr, D: tl.constexpr):
    t = tl.program_id(0)
    h = tl.arange(0, H)
    d = tl.arange(0, D // 2)
    f = tl.load(p_ptr + t).to(tl.float32) * tl.load(f_ptr + d)
    c = tl.cos(f)[None, :]
    s = tl.sin(f)[None, :]
    off = (t * H + h[:, None]) * D + d[None, :]
    a = tl.load(x_ptr + off)
    b = tl.load(x_ptr + off + D // 2)
    tl.store(o_ptr + off, a * c - b * s)
    tl.store(o_ptr + off + D // 2, b * c + a * s)


class ModelNew(nn.Module):
    def __init__(self, dim, base):
        super().__init__()
        self.dim, self.base = dim, base

    def forward(self, x, pos):
        B, T, H, D = x.shape
        o = torch.empty_like(x)
        rope[(B * T,)](x.contiguous(), pos.contiguous(), _inv_freq(D, self.base, x.device), o, H=H, D=D)
        return o
