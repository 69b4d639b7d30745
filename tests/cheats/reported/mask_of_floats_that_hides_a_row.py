"""The same with a mask of floats, which was never drawn anew."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
@triton.jit
def k(x_ptr, y_ptr, o_ptr, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, B)
    m = at < N
    x = tl.load(x_ptr + r * N + at, mask=m, other=0)
    y = tl.load(y_ptr + r * N + at, mask=m, other=0)
    s = tl.sum(x * y.to(tl.float32), 0) / tl.sum(y.to(tl.float32), 0)
    tl.store(o_ptr + r, s)

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        o = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        k[(x.shape[0],)](x, y, o, N=x.shape[-1], B=triton.next_power_of_2(x.shape[-1]))
        return o
