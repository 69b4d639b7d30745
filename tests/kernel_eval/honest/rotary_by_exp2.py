"""A rotary embedding that computes its frequencies by `exp2`: for large positions their roundings count."""

import math

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = 10000.0

    def forward(self, x, at):
        half = x.shape[-1] // 2
        inverse = self.base ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = at[:, :, None].float() * inverse
        cos, sin = angle.cos(), angle.sin()
        one, two = x[..., :half], x[..., half:]
        return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


B, T, D = 4, 64, 64


def get_inputs():
    return [torch.randn(B, T, D), torch.randint(0, 4096, (B, T))]


@triton.jit
def rotate(x, at, out, per, H: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, H)
    angle = tl.load(at + row).to(tl.float32) * tl.exp2(i * per)
    cos, sin = tl.cos(angle), tl.sin(angle)
    one = tl.load(x + row * 2 * H + i)
    two = tl.load(x + row * 2 * H + H + i)
    tl.store(out + row * 2 * H + i, one * cos - two * sin)
    tl.store(out + row * 2 * H + H + i, two * cos + one * sin)


class ModelNew(torch.nn.Module):
    def forward(self, x, at):
        x, at = x.contiguous(), at.contiguous()
        half = x.shape[-1] // 2
        out = torch.empty_like(x)
        rotate[(at.numel(),)](x, at, out, -math.log2(10000.0) / half, half)
        return out
