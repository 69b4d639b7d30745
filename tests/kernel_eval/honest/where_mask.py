"""A boolean tensor as an input."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x, torch.zeros_like(x))


def get_inputs():
    return [torch.randn(300), torch.rand(300) > 0.3]


@triton.jit
def keep(x_ptr, mask_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(mask_ptr + i, mask=i < n, other=0)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.where(chosen, x, 0.0), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        out = torch.empty_like(x)
        keep[(triton.cdiv(x.numel(), 128),)](x, mask, out, x.numel(), BLOCK=128)
        return out
