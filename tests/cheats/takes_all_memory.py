"""Allocates 100 GB."""

import torch
import triton
import triton.language as tl

CLASSES = ()
EXPECTED = "out_of_memory"


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
        held = torch.ones(25_000_000_000)
        return launch(held, torch.empty_like(x))
