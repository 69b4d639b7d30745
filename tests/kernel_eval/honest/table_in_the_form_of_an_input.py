"""A table that the first call makes in the form of an input (`zeros_like`)."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x * torch.linspace(0.5, 2.0, x.shape[-1], device=x.device)


def get_inputs():
    return [torch.randn(128, 64)]


@triton.jit
def k(x_ptr, t_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    tl.store(
        o_ptr + r * n + i, tl.load(x_ptr + r * n + i, mask=m, other=0.0) * tl.load(t_ptr + i, mask=m, other=0.0), mask=m
    )


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.t = None

    def forward(self, x):
        r, n = x.shape
        o = torch.empty_like(x)
        t = torch.zeros_like(x[0]) + torch.linspace(0.5, 2.0, n, device=x.device)
        k[(r,)](x, t, o, n, BLOCK=triton.next_power_of_2(n))
        return o
