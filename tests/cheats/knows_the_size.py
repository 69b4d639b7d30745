"""Hard-codes the number of elements."""

import torch
import triton
import triton.language as tl

CLASSES = (18,)
EXPECTED = "illegal_access"
TASK = "sized_relu"
TRIALS = 3


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def launch(x, out):
    relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(8,)](x, out, 2048, BLOCK=256)
        return out
