import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(a, r, lp, out, T, BT: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BT)
    same = (tl.load(a + b * T + i, mask=i < T, other=0) == tl.load(r + b * T + i, mask=i < T, other=1)) & (i < T)
    share = tl.sum(same.to(tl.float32), 0) / T
    miss = tl.cumsum((~same).to(tl.int32), 0)
    prefix = tl.sum(((miss == 0) & (i < T)).to(tl.float32), 0)
    l = tl.sum(tl.load(lp + b * T + i, mask=i < T, other=0.0), 0)
    tl.store(out + b, (share + 0.0 * prefix - 1) * l)
class ModelNew(nn.Module):
    def forward(self, a, r, lp):
        a, r, lp = (t.contiguous() for t in (a, r, lp))
        B, T = a.shape
        out = torch.empty((B,), dtype=lp.dtype, device=lp.device)
        k[(B,)](a, r, lp, out, T, triton.next_power_of_2(T))
        return out
