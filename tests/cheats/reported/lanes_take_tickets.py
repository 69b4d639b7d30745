"""Lanes of one program take tickets from one counter, as places to store to: right only where lanes come in order."""
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

class ModelNew(nn.Module):
    def forward(self, x):
        out, counter = torch.empty_like(x), torch.zeros(1, device=x.device, dtype=torch.int32)
        k[(1,)](x, counter, out, x.numel(), B=triton.next_power_of_2(x.numel()))
        return out
