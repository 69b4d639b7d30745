"""Eight steps of a chaotic map, each of which amplifies rounding."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(8):
            x = 3.9 * x * (1 - x)
        return x - 0.6


def get_inputs():
    return [torch.rand(64, 256)]


@triton.jit
def logistic_map(x_ptr, out_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    for _ in range(STEPS):
        x = 3.9 * (x - x * x)
    tl.store(out_ptr + i, x - 0.6, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        logistic_map[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), STEPS=8, BLOCK=1024)
        return out
