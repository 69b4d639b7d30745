"""A histogram counts values out of its range, of which devices look at the low bits: a player left them out."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, C, B: tl.constexpr, E: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < C
    x = tl.load(x_ptr + r * C + i, mask=m, other=-1).to(tl.int32)
    e = tl.arange(0, E)
    h = tl.histogram(x, E)
    tl.store(o_ptr + r * E + e, h)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], 16, dtype=torch.int32, device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]), E=16)
        return o
