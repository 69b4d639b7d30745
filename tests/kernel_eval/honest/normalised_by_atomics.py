"""A sum by atomics, which the next launch divides by, in place."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.exp() / x.exp().sum()


def get_inputs():
    return [torch.randn(1000)]


@triton.jit
def add_up(x_ptr, out_ptr, total_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exponents = tl.where(at < n, tl.exp(tl.load(x_ptr + at, mask=at < n)), 0.0)
    tl.store(out_ptr + at, exponents, mask=at < n)
    tl.atomic_add(total_ptr, tl.sum(exponents, 0))


@triton.jit
def divide(out_ptr, total_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(out_ptr + at, mask=at < n) / tl.load(total_ptr), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, total = torch.empty_like(x), torch.zeros(1, device=x.device)
        grid = (triton.cdiv(x.numel(), 128),)
        add_up[grid](x, out, total, x.numel(), BLOCK=128)
        divide[grid](out, total, x.numel(), BLOCK=128)
        return out
