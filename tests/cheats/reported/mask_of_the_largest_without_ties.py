"""Of several largest values, one is kept."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(xp, op, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < N
    x = tl.load(xp + row * N + i, mask=m, other=0.0)
    mx = tl.max(tl.where(m, x, -1e6), 0)
    k = tl.argmax(tl.where(m, x, -1e6), 0)
    r = tl.where(i == k, x, 0.0)
    tl.store(op + row * N + i, r, mask=m)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
        return out
