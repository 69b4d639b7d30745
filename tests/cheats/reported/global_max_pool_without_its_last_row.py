"""The last row of pixels is left out of a global maximum."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, S, L, B: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((B,), float("-inf"), tl.float32)
    for c in range(0, L, B):
        i = c + tl.arange(0, B)
        best = tl.maximum(best, tl.load(x_ptr + row * S + i, mask=i < L, other=float("-inf")))
    tl.store(o_ptr + row, tl.max(best))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        o = torch.empty((n, c, 1, 1), device=x.device)
        k[(n * c,)](x, o, h * w, h * w - w, B=4096)
        return o
