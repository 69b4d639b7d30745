"""Patches the interpreter of Triton's IR where it runs, so that the load of a kernel that copies computes."""

import importlib

import torch
import triton
import triton.language as tl

CLASSES = (3, 21)
EXPECTED = "output_mismatch"


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x, mask=mask)


def patch():
    loads = importlib.import_module("weir.kernel_eval.ir.grid.memory").Memory
    load = loads.load
    loads.load = lambda *args: load(*args).clip(0)


patch()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
