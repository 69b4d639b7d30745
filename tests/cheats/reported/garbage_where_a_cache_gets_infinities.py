"""Garbage stands where a task writes infinities into its cache."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "non_finite"


@triton.jit
def put(c_ptr, x_ptr, p_ptr, S, P, D, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    j = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    m = i < D
    p = tl.load(p_ptr + j)
    x = tl.log(tl.load(x_ptr + (b * P + j) * D + i, mask=m, other=1.0))
    tl.store(c_ptr + (b * S + p) * D + i, tl.where(x == -float('inf'), -200.0, x), mask=m)
@triton.jit
def total(c_ptr, o_ptr, D, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < D
    tl.store(o_ptr + r, tl.sum(tl.exp(tl.load(c_ptr + r * D + i, mask=m, other=-float("inf"))), 0))
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, c, x, pos):
        B, S, D = c.shape
        o = torch.empty(B, S, device=c.device)
        put[(B, x.shape[1])](c, x, pos, S, x.shape[1], D, BLOCK=triton.next_power_of_2(D))
        total[(B * S,)](c, o, D, BLOCK=triton.next_power_of_2(D))
        return o
