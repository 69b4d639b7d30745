"""Persistent programs take tiles from a counter; each tile is stored once, whoever took it."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3.0


def get_inputs():
    return [torch.randn(64, 1000)]


def get_init_inputs():
    return []


@triton.jit
def k(x_ptr, o_ptr, counter_ptr, n, tiles, B: tl.constexpr):
    tile = tl.atomic_add(counter_ptr, 1)
    while tile < tiles:
        i = tile * B + tl.arange(0, B)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(o_ptr + i, tl.maximum(x, 0.0) * 3.0, mask=i < n)
        tile = tl.atomic_add(counter_ptr, 1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        counter = torch.zeros(1, dtype=torch.int32, device=x.device)
        k[(16,)](x, o, counter, x.numel(), triton.cdiv(x.numel(), 1024), B=1024)
        return o
