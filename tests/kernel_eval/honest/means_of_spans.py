"""Spans as pairs in order, between which a kernel loops."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, hidden, spans):
        pos = torch.arange(hidden.shape[0])
        inside = (pos[None, :] >= spans[:, :1]) & (pos[None, :] < spans[:, 1:])
        n = inside.sum(dim=1)
        s = inside.to(hidden.dtype) @ hidden
        return s / n.clamp(min=1)[:, None], n


def get_inputs():
    spans = torch.randint(0, 101, (40, 2)).sort(dim=1).values
    return [torch.randn(100, 32), spans]


@triton.jit
def span(Hd, S, OUT, N, D, BD: tl.constexpr):
    r = tl.program_id(0)
    d = tl.arange(0, BD)
    lo = tl.load(S + 2 * r)
    hi = tl.load(S + 2 * r + 1)
    acc = tl.zeros((BD,), tl.float32)
    for t in range(lo, hi):
        acc += tl.load(Hd + t * D + d, mask=d < D, other=0.0)
    tl.store(OUT + r * D + d, acc / tl.maximum(hi - lo, 1), mask=d < D)
    tl.store(N + r, hi - lo)


class ModelNew(torch.nn.Module):
    def forward(self, hidden, spans):
        n, d = spans.shape[0], hidden.shape[1]
        out, cnt = torch.empty((n, d), device=hidden.device), torch.empty(n, device=hidden.device, dtype=torch.int64)
        span[(n,)](hidden.contiguous(), spans.contiguous(), out, cnt, d, BD=triton.next_power_of_2(d))
        return out, cnt
