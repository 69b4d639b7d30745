"""Partial sums, added by atomics to a zeroed answer."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.randn(2000)]


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros((), device=x.device)
        total[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
