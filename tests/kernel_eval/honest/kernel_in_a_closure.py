"""A kernel that is made by a function for one activation, which it takes from the enclosing names."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + torch.sigmoid(x)


def get_inputs():
    return [torch.randn(20, 33)]


@triton.jit
def tanh_of(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def sigmoid_of(x):
    return tl.sigmoid(x)


def make_kernel(first, second):
    @triton.jit
    def kernel(x_ptr, out_ptr, n, FIRST: tl.constexpr, SECOND: tl.constexpr, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(out_ptr + i, FIRST(x) + SECOND(x), mask=i < n)

    def launch(x):
        out = torch.empty_like(x)
        n = out.numel()
        kernel[(triton.cdiv(n, 128),)](x, out, n, FIRST=first, SECOND=second, BLOCK=128)
        return out

    return launch


both = make_kernel(tanh_of, sigmoid_of)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return both(x.contiguous())
