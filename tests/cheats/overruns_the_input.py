"""Stores behind its input, where a neighbour's memory could be."""

import torch
import triton
import triton.language as tl

CLASSES = (13,)
EXPECTED = "illegal_access"


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
        relu[(1,)](x, x.as_strided((1,), (1,), 0), 1, BLOCK=16)
        poke[(1,)](x, x.numel())
        return launch(x, torch.empty_like(x))


@triton.jit
def poke(x_ptr, offset):
    tl.store(x_ptr + offset, 1.0)
