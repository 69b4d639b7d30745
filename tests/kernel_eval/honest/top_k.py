"""The largest eight of each row by `tl.topk`."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.topk(x, 8, dim=-1).values


def get_inputs():
    return [torch.randn(7, 64)]


@triton.jit
def topk_kernel(x_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(out_ptr + row * K + tl.arange(0, K), tl.topk(x, K))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], 8, device=x.device)
        topk_kernel[(x.shape[0],)](x, out, N=x.shape[1], K=8)
        return out
