"""An exclusive or an inclusive sum, as a flag among the inputs says."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, exclusive: bool):
        y = torch.cumsum(x, dim=1)
        return y - x if exclusive else y


def get_inputs():
    return [torch.randn(32, 512), False]


@triton.jit
def sums(x_ptr, o_ptr, C, EXCLUSIVE: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + row * C + i, mask=i < C, other=0.0)
    y = tl.cumsum(x, 0)
    if EXCLUSIVE:
        y -= x
    tl.store(o_ptr + row * C + i, y, mask=i < C)


class ModelNew(torch.nn.Module):
    def forward(self, x, exclusive):
        o = torch.empty_like(x)
        sums[(x.shape[0],)](x, o, x.shape[1], EXCLUSIVE=exclusive, B=triton.next_power_of_2(x.shape[1]))
        return o
