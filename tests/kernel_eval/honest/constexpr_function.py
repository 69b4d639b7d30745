"""Block sizes by `triton.constexpr_function`, computed while a kernel compiles."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=-1)


def get_inputs():
    return [torch.randn(18, 90)]


@triton.constexpr_function
def padded(n):
    size = 1
    while size < n:
        size *= 2
    return size


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, COLUMNS: tl.constexpr):
    BLOCK: tl.constexpr = padded(COLUMNS)
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * COLUMNS + column, mask=column < COLUMNS, other=float("-inf"))
    largest = tl.max(x, axis=0)
    tl.store(out_ptr + row, largest + tl.log(tl.sum(tl.exp(x - largest), axis=0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        logsumexp_kernel[(x.shape[0],)](x, out, COLUMNS=x.shape[1])
        return out
