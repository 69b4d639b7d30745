"""Defines a right kernel when interpreted, and one that does nothing when compiled."""

import torch
import triton
import triton.language as tl

CLASSES = (7, 22)
EXPECTED = "output_mismatch"


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if isinstance(BLOCK, tl.constexpr):
        tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)
    else:
        tl.store(out_ptr + offsets, x, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
