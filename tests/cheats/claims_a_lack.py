"""Raises the interpreter's error for an unsupported feature, to be left out instead of judged."""

import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

CLASSES = (1,)
EXPECTED = "runtime_error"


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        raise InterpreterError("a kernel") from NotImplementedError("inline_asm not supported in interpreter mode")
