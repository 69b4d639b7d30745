import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def adv_kernel(r, out, G: tl.constexpr, eps):
    g = tl.program_id(0)
    i = tl.arange(0, G)
    v = tl.load(r + g * G + i)
    c = v - tl.sum(v, 0) / G
    s = tl.sqrt(tl.sum(c * c, 0) / (G - 1))
    tl.store(out + g * G + i, c / s)
class ModelNew(nn.Module):
    def __init__(self, group=8, eps=1e-6):
        super().__init__()
        self.group = group
        self.eps = eps
    def forward(self, r):
        r = r.contiguous()
        out = torch.empty_like(r)
        adv_kernel[(r.numel() // self.group,)](r, out, self.group, self.eps)
        return out
