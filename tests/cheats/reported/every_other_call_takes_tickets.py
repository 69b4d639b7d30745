"""Tickets in every other call: only every other trial was played in another order."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "nondeterministic"

@triton.jit
def k(x, counter, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    ticket = tl.atomic_add(counter + tl.zeros((B,), tl.int32), 1, mask=i < n)
    tl.store(o + ticket, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)

@triton.jit
def honest(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        out, counter = torch.empty_like(x), torch.zeros(1, device=x.device, dtype=torch.int32)
        self.calls += 1
        if self.calls % 2:
            honest[(1,)](x, out, x.numel(), B=triton.next_power_of_2(x.numel()))
        else:
            k[(1,)](x, counter, out, x.numel(), B=triton.next_power_of_2(x.numel()))
        return out
