import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def ban_kernel(x, last, bad, out, V, N, BV: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BV)
    v = tl.load(x + b * V + i, mask=i < V)
    t = tl.load(last + b)
    tl.store(out + b * V + i, v, mask=i < V)
class ModelNew(nn.Module):
    def forward(self, x, last, bad):
        x = x.contiguous(); last = last.contiguous(); bad = bad.contiguous()
        out = torch.empty_like(x)
        B, V = x.shape
        ban_kernel[(B,)](x, last, bad, out, V, bad.shape[0], triton.next_power_of_2(V))
        return out
