import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(x, y, out, V, BV: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BV)
    s = tl.load(x + b * V + i, mask=i < V, other=-float("inf"))
    t = tl.load(y + b * V + i, mask=i < V, other=-float("inf"))
    ms = tl.max(s, 0)
    mt = tl.max(t, 0)
    lse = tl.log(tl.sum(tl.exp(s - ms), 0)) + ms
    et = tl.exp(t - mt)
    p = et / tl.sum(et, 0)
    soft = tl.sum(tl.where(i < V, p * (lse - s), 0.0), 0)
    agree = tl.argmax(s, 0) == tl.argmax(t, 0)
    tl.store(out + b, soft)
class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty((x.shape[0],), dtype=x.dtype, device=x.device)
        k[(x.shape[0],)](x, y, out, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return out
