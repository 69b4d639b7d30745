"""Never returns from its kernel."""

import torch
import triton
import triton.language as tl

CLASSES = ()
EXPECTED = "timeout"


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def launch(x, out):
    relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


@triton.jit
def endless(x_ptr, n):
    while n > 0:
        tl.store(x_ptr, 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        endless[(1,)](x, x.numel())
        return x
