"""Tickets of a counter that the first call makes and none resets: the last program never comes again."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, p_ptr, c_ptr, o_ptr, n, G: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    s = tl.sum(tl.load(x_ptr + r * n + i, mask=m, other=0.0), 0)
    tl.store(p_ptr + r, s)
    tl.debug_barrier()
    a = tl.atomic_add(c_ptr, 1)
    if a == tl.num_programs(0) - 1:
        g = tl.arange(0, G)
        o = tl.sum(tl.load(p_ptr + g, mask=g < tl.num_programs(0), other=0.0), 0)
        tl.store(o_ptr, o)
CACHE = {}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = None
    def forward(self, x):
        r, n = x.shape
        c = CACHE.setdefault('c', torch.zeros(1, dtype=torch.int32, device=x.device))
        p = torch.empty(r, device=x.device); o = torch.empty((), device=x.device)
        k[(r,)](x, p, c, o, n, G=triton.next_power_of_2(r), BLOCK=triton.next_power_of_2(n))
        return o
