"""A gate in int8: its own formula of a gelu passes through one, and is off by a rounding of it far below zero."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


class Model(torch.nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        h = torch.nn.functional.gelu(a, approximate="tanh") * b
        most = h.abs().amax(dim=-1, keepdim=True)
        scale = torch.where(most > 1e-8, most / 127.0, torch.ones_like(most))
        q = torch.round(h / scale).clamp(-127, 127).to(torch.int8)
        return q, scale.squeeze(-1)


def get_inputs():
    x = torch.randn(64, 384)
    x[torch.rand(64) < 0.05] = 0.0
    return [x]


@triton.jit
def geglu(X, Q, S, H, BH: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, BH)
    m = o < H
    a = tl.load(X + r * 2 * H + o, mask=m, other=0.0)
    b = tl.load(X + r * 2 * H + H + o, mask=m, other=0.0)
    h = 0.5 * a * (1.0 + libdevice.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a))) * b
    most = tl.max(tl.abs(h), 0)
    s = tl.where(most > 1e-8, most / 127.0, 1.0)
    q = tl.clamp(libdevice.rint(h / s), -127.0, 127.0)
    tl.store(Q + r * H + o, q.to(tl.int8), mask=m)
    tl.store(S + r, s)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, w = x.shape
        h = w // 2
        q, s = torch.empty((n, h), device=x.device, dtype=torch.int8), torch.empty(n, device=x.device)
        geglu[(n,)](x.contiguous(), q, s, h, BH=triton.next_power_of_2(h))
        return q, s
