"""A filter written as a list of lists in forward."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Sobel magnitude; the task makes its filters in each call."""

    def forward(self, x):
        k = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]], device=x.device, dtype=x.dtype)
        w = torch.stack([k, k.t()]).unsqueeze(1)
        g = torch.nn.functional.conv2d(x, w, padding=1)
        return torch.sqrt(g[:, 0] ** 2 + g[:, 1] ** 2 + 1e-6)


def get_inputs():
    return [torch.randn(2, 1, 24, 30)]


@triton.jit
def sobel(x_ptr, w_ptr, o_ptr, H, W, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    w = i % W
    h = (i // W) % H
    b = i // (H * W)
    gx = tl.zeros((B,), tl.float32)
    gy = tl.zeros((B,), tl.float32)
    for a in tl.static_range(3):
        for c in tl.static_range(3):
            y = h + a - 1
            z = w + c - 1
            v = tl.load(x_ptr + (b * H + y) * W + z, mask=m & (y >= 0) & (y < H) & (z >= 0) & (z < W), other=0.0)
            gx += v * tl.load(w_ptr + a * 3 + c)
            gy += v * tl.load(w_ptr + c * 3 + a)
    tl.store(o_ptr + i, tl.sqrt(gx * gx + gy * gy + 1e-6), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        N, _, H, W = x.shape
        k = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]], device=x.device, dtype=x.dtype)
        o = x.new_empty(N, H, W)
        sobel[(triton.cdiv(o.numel(), 256),)](x, k, o, H, W, o.numel(), B=256)
        return o
