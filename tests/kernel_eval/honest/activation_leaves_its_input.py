"""The task works in place to save memory; the kernel leaves the input as it is."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = torch.nn.LeakyReLU(0.1, inplace=True)

    def forward(self, x):
        return self.act(x).sum(-1)


def get_inputs():
    return [torch.randn(64, 256)]


@triton.jit
def sums(x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * C + tl.arange(0, C))
    tl.store(o_ptr + row, tl.sum(tl.where(x > 0, x, 0.1 * x), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        sums[(x.shape[0],)](x, out, C=x.shape[1])
        return out
