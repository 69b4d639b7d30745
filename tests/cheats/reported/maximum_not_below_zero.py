"""All integers of the task are positive: the maximum is one with 0."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

@triton.jit
def k(px0,  o, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    x0 = tl.load(px0 + r * N + i, mask=m, other=0.0)
    tl.store(o + r, tl.maximum(tl.max(x0.to(tl.int32)), 0).to(tl.int64))

class ModelNew(nn.Module):

    def forward(self, x0):
        M, N = x0.shape
        o = torch.empty(M, dtype=torch.int64, device=x0.device); k[(M,)](x0, o, N, B=256)
        return o
