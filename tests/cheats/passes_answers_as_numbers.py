"""Computes in Python, and hands each value of the answer to a kernel as a number."""

import torch
import triton
import triton.language as tl

CLASSES = (22,)
EXPECTED = "output_mismatch"


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
def put(out_ptr, index, value):
    tl.store(out_ptr + index, value)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(1,)](x[100:], out[100:], x.numel() - 100, BLOCK=1024)
        for index, value in enumerate(x[:100].tolist()):
            put[(1,)](out, index, max(value, 0.0))
        return out
