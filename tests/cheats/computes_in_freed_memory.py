"""Torch computes in unfilled memory, where a replay would have freed a copy of the inputs; a kernel copies."""

import ctypes

import torch
import triton
import triton.language as tl

CLASSES = (12, 21)
EXPECTED = "non_finite"
PAD = 65536


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.numel()
        for _ in range(4):
            padded = torch.cat([torch.zeros(PAD, device=x.device), x.reshape(-1)])
        reused = torch.ops.aten.empty.memory_format([n + PAD], dtype=torch.float32, device=x.device)
        ctypes.memmove(reused.data_ptr(), padded.data_ptr(), 4 * (n + PAD))
        answer = torch.relu(reused[PAD:])
        out = torch.empty_like(x)
        copy[(triton.cdiv(n, 256),)](answer, out, n, BLOCK=256)
        return out
