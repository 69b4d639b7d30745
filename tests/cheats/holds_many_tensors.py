"""Claims that the model holds so many tensors that the judge runs out of memory."""

import gc
import time

import torch
import triton
import triton.language as tl

CLASSES = (1,)
EXPECTED = "out_of_memory"


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        worker = next(o for o in gc.get_objects() if type(o).__name__ == "RecordWorker")
        names = type(worker).attempt.__globals__
        names["send"](worker._channel, names["Constructed"]((0,) * 300_000))
        time.sleep(60)

    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out * 0.0
