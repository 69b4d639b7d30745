"""Flips rows through memory: each lane reads what another one wrote, with no barrier between."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "nondeterministic"

@triton.jit
def k(x, s, o, N, B: tl.constexpr):
    r, i = tl.program_id(0) * N, tl.arange(0, B)
    tl.store(s + r + i, tl.maximum(tl.load(x + r + i, mask=i < N), 0.0), mask=i < N)
    tl.store(o + r + i, tl.load(s + r + N - 1 - i, mask=i < N), mask=i < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out, scratch = torch.empty_like(x), torch.empty_like(x)
        k[(M,)](x, scratch, out, N, B=triton.next_power_of_2(N))
        return out
