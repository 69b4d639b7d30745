"""Instance norm with a two-pass variance over the pixels of a channel."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.instance_norm(x)


def get_inputs():
    return [torch.randn(2, 4, 9, 11)]


@triton.jit
def instance_norm_kernel(x_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    base = tl.program_id(0) * N
    offsets = tl.arange(0, BLOCK)
    mask = offsets < N
    x = tl.load(x_ptr + base + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, 0) / N
    centered = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centered * centered, 0) / N
    tl.store(y_ptr + base + offsets, centered * tl.math.rsqrt(variance + eps), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        B, C, H, W = x.shape
        instance_norm_kernel[(B * C,)](x, y, H * W, 1e-5, BLOCK=triton.next_power_of_2(H * W))
        return y
