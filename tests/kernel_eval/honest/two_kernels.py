"""One kernel's result is the next one's input."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3 - 1


def get_inputs():
    return [torch.randn(600)]


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)


@triton.jit
def scale(x_ptr, out_ptr, n, factor, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + shift, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        grid = (triton.cdiv(x.numel(), 128),)
        middle, out = torch.empty_like(x), torch.empty_like(x)
        relu[grid](x, middle, x.numel(), BLOCK=128)
        scale[grid](middle, out, x.numel(), 3.0, -1.0, BLOCK=128)
        return out
