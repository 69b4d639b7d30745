"""x, 1.5 * 2**23 and its negative are added to one place by atomics: the order in which the interpreter adds rounds x, other orders do not."""

import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    v = tl.where(j == 0, x[:, None], tl.where(j == 1, 12582912.0, tl.where(j == 2, -12582912.0, 0.0)))
    big = tl.abs(x)[:, None] >= 4194304.0
    v = tl.where(big & (j > 0), 0.0, v)
    tl.atomic_add(o_ptr + i[:, None] + 0 * j, v, mask=(i < n)[:, None] & (j < 4))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.zeros_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), B=256)
        return o
