import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def ss_kernel(h, pw, nw, target, sampled, out, D, S, BD: tl.constexpr, BS: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, BD)
    s = tl.arange(0, BS)
    x = tl.load(h + b * D + d, mask=d < D, other=0.0)
    p = tl.sum(x * tl.load(pw + b * D + d, mask=d < D, other=0.0), 0)
    w = tl.load(nw + s[:, None] * D + d[None, :], mask=(s[:, None] < S) & (d[None, :] < D), other=0.0)
    n = tl.sum(w * x[None, :], 1)
    t = tl.load(target + b)
    ids = tl.load(sampled + s, mask=s < S, other=-1)
    n = tl.where(s < S, n, -float("inf"))
    m = tl.maximum(tl.max(n, 0), p)
    z = tl.sum(tl.exp(n - m), 0) + tl.exp(p - m)
    tl.store(out + b, tl.log(z) + m - p)
class ModelNew(nn.Module):
    def forward(self, h, pw, nw, target, sampled):
        h, pw, nw, target, sampled = (v.contiguous() for v in (h, pw, nw, target, sampled))
        B, D = h.shape; S = nw.shape[0]
        out = torch.empty((B,), dtype=h.dtype, device=h.device)
        ss_kernel[(B,)](h, pw, nw, target, sampled, out, D, S, triton.next_power_of_2(D), triton.next_power_of_2(S))
        return out
