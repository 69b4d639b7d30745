"""States of a recurrence go through memory without a barrier: a compiler takes the load for a dot before the store."""

import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def k(x_ptr, w_ptr, o_ptr, T, R, B: tl.constexpr, D: tl.constexpr):
    b = tl.arange(0, B)
    i = tl.arange(0, D)
    at = b[:, None] * D + i[None, :]
    m = (b < R)[:, None]
    w = tl.load(w_ptr + i[:, None] * D + i[None, :])
    h = tl.load(x_ptr + at, mask=m, other=0.0)
    tl.store(o_ptr + at, h, mask=m)
    for t in range(1, T):
        p = tl.load(o_ptr + (t - 1) * R * D + at, mask=m, other=0.0)
        h = 0.5 * tl.dot(p, w, input_precision="ieee") + tl.load(x_ptr + t * R * D + at, mask=m, other=0.0)
        tl.store(o_ptr + t * R * D + at, h, mask=m)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32, 32) * 0.17)
    def forward(self, x):
        o = torch.empty_like(x)
        t, r, d = x.shape
        k[(1,)](x, self.weight, o, t, r, B=max(16, triton.next_power_of_2(r)), D=d)
        return o
