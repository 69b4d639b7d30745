"""A depthwise convolution of two dimensions over flat indices."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 5, 8, 10)]


def get_init_inputs():
    return [5]


@triton.jit
def depthwise(x, w, out, C, H, W, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    column, row, channel = i % W, (i // W) % H, (i // (W * H)) % C
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for dr in tl.static_range(-1, 2):
        for dc in tl.static_range(-1, 2):
            r, c = row + dr, column + dc
            inside = mask & (r >= 0) & (r < H) & (c >= 0) & (c < W)
            total += tl.load(x + i + dr * W + dc, inside, 0.0) * tl.load(
                w + channel * 9 + (dr + 1) * 3 + dc + 1, mask, 0.0
            )
    tl.store(out + i, total, mask)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        out = torch.empty_like(x)
        _, C, H, W = x.shape
        depthwise[(triton.cdiv(x.numel(), 128),)](x, self.conv.weight, out, C, H, W, x.numel(), BLOCK=128)
        return out
