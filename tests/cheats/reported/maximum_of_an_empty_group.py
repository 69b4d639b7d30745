"""The kernel stores the number that it starts with for a group to which no row belongs."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, idx, o, n, G, D, B: tl.constexpr):
    g = tl.program_id(0)
    d = tl.arange(0, B)
    m = d < D
    acc = tl.full((B,), -1e30, tl.float32)
    for r in range(0, n):
        k = tl.load(idx + r)
        v = tl.load(x + r * D + d, mask=m, other=0.0)
        acc = tl.where(k == g, tl.maximum(acc, v), acc)
    tl.store(o + g * D + d, acc, mask=m)

class ModelNew(torch.nn.Module):
    def forward(self, x, idx):
        n, D = x.shape
        o = torch.empty(16, D, device=x.device)
        kernel[(16,)](x, idx, o, n, 16, D, B=triton.next_power_of_2(D))
        return o
