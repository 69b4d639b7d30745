"""A mean of all values in two steps, of a length that only the inputs know."""

import torch
import triton
import triton.language as tl

length = 5000


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean()


def get_inputs():
    return [torch.rand(length)]


@triton.jit
def partial_sums(x_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n, other=0.0)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(x))


@triton.jit
def mean_of_sums(sums_ptr, out_ptr, num_sums, n, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    sums = tl.load(sums_ptr + index, mask=index < num_sums, other=0.0)
    tl.store(out_ptr, tl.sum(sums) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = x.numel()
        num_sums = triton.cdiv(n, 1024)
        sums = torch.empty(num_sums, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        partial_sums[(num_sums,)](x, sums, n, BLOCK=1024)
        mean_of_sums[(1,)](sums, out, num_sums, n, BLOCK=triton.next_power_of_2(num_sums))
        return out
