"""A 1-D convolution: one dot for each tap."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(16, 16, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 16, 32)]


@triton.jit
def conv(x_ptr, w_ptr, b_ptr, out_ptr, C: tl.constexpr, L: tl.constexpr, TAPS: tl.constexpr):
    batch = tl.program_id(0)
    c, position = tl.arange(0, C), tl.arange(0, L)
    total = tl.zeros((C, L), dtype=tl.float32) + tl.load(b_ptr + c)[:, None]
    for tap in tl.static_range(TAPS):
        source = position + tap - TAPS // 2
        inside = (source >= 0) & (source < L)
        w = tl.load(w_ptr + c[:, None] * C * TAPS + c[None, :] * TAPS + tap)
        x = tl.load(x_ptr + batch * C * L + c[:, None] * L + source[None, :], mask=inside[None, :], other=0.0)
        total = tl.dot(w, x, total, input_precision="ieee")
    tl.store(out_ptr + batch * C * L + c[:, None] * L + position[None, :], total)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(16, 16, 3, padding=1)

    def forward(self, x):
        out = torch.empty_like(x)
        conv[(x.shape[0],)](x, self.conv.weight, self.conv.bias, out, C=x.shape[1], L=x.shape[2], TAPS=3)
        return out
