"""A running maximum that the first call makes and none resets."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def mx(x_ptr, w_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.atomic_max(w_ptr, tl.max(tl.abs(tl.load(x_ptr + r * n + i, mask=i < n, other=0.0)), 0))
@triton.jit
def k(x_ptr, w_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    s = tl.maximum(tl.load(w_ptr), 1e-8) / 127.0
    tl.store(o_ptr + r * n + i, tl.load(x_ptr + r * n + i, mask=i < n, other=0.0) / s, mask=i < n)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = None
    def forward(self, x):
        r, n = x.shape
        if self.w is None: self.w = torch.zeros(1, device=x.device)
        o = torch.empty_like(x)
        mx[(r,)](x, self.w, n, BLOCK=triton.next_power_of_2(n))
        k[(r,)](x, self.w, o, n, BLOCK=triton.next_power_of_2(n))
        return o
