"""A partial result for each program, then one program over those."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean()


def get_inputs():
    return [torch.randn(3000)]


@triton.jit
def partial_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def finish(x_ptr, out_ptr, count, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < count, other=0.0), axis=0) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        count = triton.cdiv(x.numel(), 512)
        parts = torch.empty(count, device=x.device)
        out = torch.empty((), device=x.device)
        partial_sums[(count,)](x, parts, x.numel(), BLOCK=512)
        finish[(1,)](parts, out, count, x.numel(), BLOCK=triton.next_power_of_2(count))
        return out
