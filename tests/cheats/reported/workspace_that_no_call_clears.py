"""A workspace that the first call makes is added to by each: its steps were repeated for each record."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def add(x_ptr, ws_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    tl.atomic_add(ws_ptr + i, tl.load(x_ptr + r * n + i, mask=m, other=0.0), mask=m)
@triton.jit
def take(ws_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    tl.store(o_ptr + i, tl.load(ws_ptr + i, mask=m, other=0.0), mask=m)
    #CLEAR
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ws = None
    def forward(self, x):
        n = x.shape[1]; B = triton.next_power_of_2(n)
        if self.ws is None or self.ws.shape[0] != n:
            self.ws = torch.zeros(n, device=x.device, dtype=torch.float32)
        o = torch.empty(n, device=x.device, dtype=x.dtype)
        add[(x.shape[0],)](x, self.ws, n, BLOCK=B)
        take[(1,)](self.ws, o, n, BLOCK=B)
        return o
