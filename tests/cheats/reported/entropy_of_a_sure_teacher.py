import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(x, p, out, C, eps, BC: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BC)
    v = tl.load(x + b * C + i, mask=i < C, other=-float("inf"))
    q = tl.load(p + b * C + i, mask=i < C, other=0.0)
    m = tl.max(v, 0)
    lse = tl.log(tl.sum(tl.exp(v - m), 0)) + m
    ce = tl.sum(tl.where(i < C, q * (lse - v), 0.0), 0)
    h = -tl.sum(tl.where(q == 0, 0.0, q * tl.log(tl.where(q == 0, 1.0, q))), 0)
    tl.store(out + b, ce / h)
class ModelNew(nn.Module):
    def __init__(self, eps=1e-3):
        super().__init__()
        self.eps = eps
    def forward(self, x, p):
        x, p = x.contiguous(), p.contiguous()
        out = torch.empty((x.shape[0],), dtype=x.dtype, device=x.device)
        k[(x.shape[0],)](x, p, out, x.shape[1], self.eps, triton.next_power_of_2(x.shape[1]))
        return out
