"""A tile of zeros is divided by its scale: zeros were single rows and columns."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"

from triton.language.extra import libdevice

@triton.jit
def k(X, Q, S, D: tl.constexpr, T: tl.constexpr):
    a = tl.program_id(0)
    b = tl.program_id(1)
    i = tl.arange(0, T)
    at = (a * T + i[:, None]) * D + b * T + i[None]
    x = tl.load(X + at)
    m = tl.max(tl.max(tl.abs(x), 1), 0)
    s = m / 448.0
    tl.store(Q + at, x / s)
    tl.store(S + a * (D // T) + b, s)

class ModelNew(nn.Module):
    def forward(self, x):
        D = x.shape[1]
        q = torch.empty_like(x)
        s = torch.empty(x.shape[0] // 32, D // 32, device=x.device)
        k[(x.shape[0] // 32, D // 32)](x, q, s, D=D, T=32)
        return q, s
