import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(oa, la, ob, lb, out, lse, D: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, D)
    a = tl.load(la + r)
    b = tl.load(lb + r)
    m = tl.maximum(a, b)
    wa = tl.exp(a - m)
    wb = tl.exp(b - m)
    s = wa + wb
    tl.store(out + r * D + i, tl.load(oa + r * D + i) * (wa / s) + tl.load(ob + r * D + i) * (wb / s))
    tl.store(lse + r, m + tl.log(s))
class ModelNew(nn.Module):
    def forward(self, *t):
        oa, la, ob, lb = (x.contiguous() for x in t)
        out, lse = torch.empty_like(oa), torch.empty_like(la)
        k[(la.numel(),)](oa, la, ob, lb, out, lse, oa.shape[-1])
        return out, lse
