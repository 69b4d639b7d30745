"""Upsampling to the nearest, each value of the output from its source index."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")


def get_inputs():
    return [torch.randn(2, 3, 5, 7)]


@triton.jit
def upsample(src, dst, H, W, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w, rest = i % (W * SCALE), i // (W * SCALE)
    h, plane = rest % (H * SCALE), rest // (H * SCALE)
    value = tl.load(src + (plane * H + h // SCALE) * W + w // SCALE, mask=i < n)
    tl.store(dst + i, value, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        out = x.new_empty(B, C, 2 * H, 2 * W)
        upsample[(triton.cdiv(out.numel(), 256),)](x, out, H, W, out.numel(), SCALE=2, BLOCK=256)
        return out
