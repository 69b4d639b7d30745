"""Promises that places which begin at 1 begin at a multiple of 16: a device loads them as aligned groups of four."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "device_assert"

@triton.jit
def k(x, o, N, n, B: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, B)
    here = tl.max_contiguous(tl.multiple_of(r * N + 1 + i, 16), 16)
    tl.store(o + r * n + i, tl.maximum(tl.load(x + here, mask=i < n), 0.0), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty(M, N - 1, device=x.device)
        k[(M,)](x, out, N, N - 1, B=triton.next_power_of_2(N))
        return out
