"""The padding of a max pooling is zeros, not minus infinity."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, H, W, K: tl.constexpr, P: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    plane, y = row // H, row % H
    i = tl.arange(0, B)
    best = tl.full((B,), float("-inf"), tl.float32)
    for dy in range(K):
        for dx in range(K):
            yy = y + dy - P
            xx = i + dx - P
            inside = (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W)
            best = tl.maximum(best, tl.load(x_ptr + plane * H * W + yy * W + xx, mask=inside, other=0.0))
    tl.store(o_ptr + row * W + i, best, mask=i < W)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        o = torch.empty_like(x)
        k[(n * c * h,)](x, o, h, w, K=7, P=3, B=triton.next_power_of_2(w))
        return o
