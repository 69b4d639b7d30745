"""A batch norm in training mode: the running mean and variance are not updated."""

import torch

import triton

import triton.language as tl

@triton.jit
def k(x_ptr, w_ptr, b_ptr, o_ptr, N, C, S: tl.constexpr, B: tl.constexpr):
    c = tl.program_id(0)
    i = tl.arange(0, B)
    at = i // S * C * S + c * S + i % S
    m = i < N * S
    x = tl.load(x_ptr + at, mask=m, other=0.0)
    mean = tl.sum(x) / (N * S)
    d = tl.where(m, x - mean, 0.0)
    y = d / tl.sqrt(tl.sum(d * d) / (N * S) + 1e-5)
    tl.store(o_ptr + at, y * tl.load(w_ptr + c) + tl.load(b_ptr + c), mask=m)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm2d(32)

    def forward(self, x):
        o = torch.empty_like(x)
        n, c, h, w = x.shape
        k[(c,)](x, self.bn.weight, self.bn.bias, o, n, c, S=h * w, B=triton.next_power_of_2(n * h * w))
        return o
