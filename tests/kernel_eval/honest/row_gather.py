"""Values of each row in the order that indices name, by `tl.gather`."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, index):
        return torch.gather(x, 1, index)


def get_inputs():
    return [torch.randn(6, 32), torch.randint(0, 32, (6, 32))]


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    index = tl.load(index_ptr + offsets).to(tl.int32)
    tl.store(out_ptr + offsets, tl.gather(x, index, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        out = torch.empty_like(x)
        gather_kernel[(x.shape[0],)](x, index, out, N=x.shape[1])
        return out
