"""Sums of all programs by atomics that hold within one program."""

import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def k(x_ptr, o_ptr, N, C, B: tl.constexpr, R: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    i = tl.arange(0, B)
    m = (i < C)[None, :] & (r < N)[:, None]
    x = tl.load(x_ptr + r[:, None] * C + i[None, :], mask=m, other=0.0)
    tl.atomic_add(o_ptr + i, tl.sum(x * x, 0), mask=i < C, sem="relaxed", scope="cta")

class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, c = x.shape
        o = torch.zeros(c, device=x.device)
        k[(triton.cdiv(n, 16),)](x, o, n, c, B=triton.next_power_of_2(c), R=16)
        return o
