"""Sends a forged message in a player's words: the interpreter of Triton's IR cannot run an honest kernel."""

import gc
import time

import torch
import triton
import triton.language as tl

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
        recorder = next(o for o in gc.get_objects() if type(o).__name__ == "RecordWorker")
        names = type(recorder).attempt.__globals__
        failed = names["Failed"]("replay", "LaunchFailed", "unknown", "", refused_by="unsupported", kernel="relu:14")
        names["send"](recorder._channel, failed)
        time.sleep(60)
