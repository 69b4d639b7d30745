"""No value is the threshold, in a task that does not work value by value."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
@triton.jit
def k(x_ptr, o_ptr, N: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, B)
    m = at < N
    x = tl.load(x_ptr + r * N + at, mask=m, other=0)
    tl.store(o_ptr + r * N + at, tl.cumsum((x > 0.5).to(tl.float32), 0), mask=m)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        k[(x.shape[0],)](x, o, N=x.shape[-1], B=triton.next_power_of_2(x.shape[-1]))
        return o
