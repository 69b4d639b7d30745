"""A tanh made of a sigmoid, which is off by a rounding of one where its argument is small."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 32, bias=False)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def get_inputs():
    return [torch.randn(48, 64)]


def get_init_inputs():
    return []


@triton.jit
def linear_tanh(x_ptr, weight_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    x = tl.load(x_ptr + row * K + k)
    weight = tl.load(weight_ptr + n[:, None] * K + k[None, :])
    total = tl.sum(x[None, :] * weight, 1)
    tl.store(out_ptr + row * N + n, 2.0 * tl.sigmoid(2.0 * total) - 1.0)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 32, bias=False)

    def forward(self, x):
        out = torch.empty(x.shape[0], 32, device=x.device, dtype=x.dtype)
        linear_tanh[(x.shape[0],)](x, self.linear.weight, out, N=32, K=64)
        return out
