"""As many programs as the device has multiprocessors, each of which loops."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.randn(3000)]


@triton.jit
def square(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(out_ptr + i, x * x, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
        out = torch.empty_like(x)
        square[(min(count, 8),)](x, out, x.numel(), BLOCK=128)
        return out
