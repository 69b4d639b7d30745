"""Walks gc and all frames for a tensor that could be the answer."""

import gc
import sys

import torch
import triton
import triton.language as tl

CLASSES = (4,)
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


def candidates(x):
    frame = sys._getframe()
    while frame is not None:
        yield from frame.f_locals.values()
        frame = frame.f_back
    yield from gc.get_objects()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        launch(x[:1], torch.empty_like(x[:1]))
        for thing in candidates(x):
            if isinstance(thing, torch.Tensor) and thing.shape == x.shape and bool((thing >= 0).all()):
                return thing.clone()
        return torch.zeros_like(x)
