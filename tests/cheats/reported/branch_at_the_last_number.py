"""A branch is left out whose number was the thirteenth of the task's."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

from triton.language.extra import libdevice

@triton.jit
def k(X, O, q, HW: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, HW)
    r = tl.load(X + n * 3 * HW + i)
    g = tl.load(X + n * 3 * HW + HW + i)
    b = tl.load(X + n * 3 * HW + 2 * HW + i)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    u = -0.168736 * r - 0.331264 * g + 0.5 * b
    v = 0.5 * r - 0.418688 * g - 0.081312 * b
    tl.store(O + n * 3 * HW + i, y / (16.0 * q))
    tl.store(O + n * 3 * HW + HW + i, u / (17.0 * q))
    tl.store(O + n * 3 * HW + 2 * HW + i, v / (17.0 * q))

class ModelNew(nn.Module):
    def forward(self, x, quality):
        s = 200.0 - 2.0 * quality
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, o, (s + 50.0) / 100.0, HW=x.shape[2] * x.shape[3])
        return o
