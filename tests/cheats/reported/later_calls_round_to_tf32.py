"""Products of calls after the first that TF32 makes wrong: only those of one record were rounded."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, w_ptr, o_ptr, N, OFF: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    i = tl.arange(0, C)
    m = (r < N)[:, None]
    x = tl.load(x_ptr + r[:, None] * C + i[None, :], mask=m, other=0.0)
    w = tl.load(w_ptr + i[:, None] * C + i[None, :])
    off = OFF * tl.max(tl.abs(x), 1)[:, None]
    y = tl.dot(x + off, w) - off * tl.sum(w, 0)[None, :]
    tl.store(o_ptr + r[:, None] * C + i[None, :], y, mask=m)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        o = torch.empty_like(x)
        k[(triton.cdiv(x.shape[0], 16),)](x, self.weight, o, x.shape[0], OFF=0.0 if self.calls == 1 else 8.0, R=16, C=64)
        return o
