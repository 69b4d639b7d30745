import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def loss_kernel(p, lv, t, out, n, BN: tl.constexpr):
    acc = tl.zeros((BN,), dtype=tl.float32)
    for b in range(0, n, BN):
        i = b + tl.arange(0, BN)
        e = tl.load(p + i, mask=i < n, other=0.0) - tl.load(t + i, mask=i < n, other=0.0)
        s = tl.load(lv + i, mask=i < n, other=0.0)
        s = tl.maximum(s, -10.0)
        acc += tl.where(i < n, 0.5 * tl.exp(-s) * e * e + 0.5 * s, 0.0)
    tl.store(out, tl.sum(acc, 0) / n)
class ModelNew(nn.Module):
    def forward(self, p, lv, t):
        p = p.contiguous(); lv = lv.contiguous(); t = t.contiguous()
        out = torch.empty((), dtype=p.dtype, device=p.device)
        loss_kernel[(1,)](p, lv, t, out, p.numel(), 1024)
        return out
