"""A buffer of integers that starts as zeros is not read."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, p, o, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    x = tl.load(a + r * N + i, mask=m, other=0.0)
    y = x * tl.load(p + i, mask=m)
    tl.store(o + r * N + i, y, mask=m)

class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.register_buffer("scale", torch.rand(100) + 0.1)
    def forward(self, x):
        o = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, self.scale, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
