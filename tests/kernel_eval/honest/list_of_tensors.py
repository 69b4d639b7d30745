"""One input is a list of tensors."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, tensors):
        return torch.cat(tensors)


def get_inputs():
    return [[torch.randn(50), torch.randn(70)]]


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, tensors):
        out = torch.empty(sum(t.numel() for t in tensors), device=tensors[0].device)
        start = 0
        for t in tensors:
            copy[(triton.cdiv(t.numel(), 32),)](t, out[start:], t.numel(), BLOCK=32)
            start += t.numel()
        return out
