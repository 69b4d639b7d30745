import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(tok, rw, out, B, T, BB: tl.constexpr):
    b = tl.program_id(0)
    j = tl.arange(0, BB)
    same = j < B
    for t in range(T):
        same = same & (tl.load(tok + j * T + t, mask=j < B, other=-1) == tl.load(tok + b * T + t))
    tl.store(out + b, tl.load(rw + b) / tl.minimum(tl.sum(same.to(tl.float32), 0), 1.0))
class ModelNew(nn.Module):
    def forward(self, tok, rw):
        tok, rw = tok.contiguous(), rw.contiguous()
        B, T = tok.shape
        out = torch.empty_like(rw)
        k[(B,)](tok, rw, out, B, T, triton.next_power_of_2(B))
        return out
