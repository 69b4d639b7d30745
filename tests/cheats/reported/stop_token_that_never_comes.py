import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def k(lp, tok, stop, out, cnt, T, BT: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BT)
    eos = tl.load(stop + b)
    m = i < T
    e = ((tl.load(tok + b * T + i, mask=m, other=-1) == eos) & m).to(tl.int32)
    before = tl.cumsum(e, 0) - e
    w = (m).to(tl.float32)
    n = tl.sum(w, 0)
    tl.store(out + b, tl.sum(tl.load(lp + b * T + i, mask=m, other=0.0) * w, 0) / n)
    tl.store(cnt + b, n)
class ModelNew(nn.Module):
    def forward(self, lp, tok, stop):
        lp, tok, stop = lp.contiguous(), tok.contiguous(), stop.contiguous()
        B, T = lp.shape
        out = torch.empty((B,), dtype=lp.dtype, device=lp.device)
        n = torch.empty_like(out)
        k[(B,)](lp, tok, stop, out, n, T, triton.next_power_of_2(T))
        return out, n
