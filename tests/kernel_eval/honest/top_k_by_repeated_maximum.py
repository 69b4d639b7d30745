"""The values of the largest four of a row, one maximum at a time."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.topk(x, 4, dim=-1).values


def get_inputs():
    return [torch.randn(17, 50)]


def get_init_inputs():
    return []


@triton.jit
def topk(x_ptr, o_ptr, N, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=float("-inf"))
    for k in tl.static_range(K):
        best, at = tl.max(x, 0, return_indices=True)
        tl.store(o_ptr + row * K + k, best)
        x = tl.where(c == at, float("-inf"), x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        M, N = x.shape
        o = torch.empty((M, 4), device=x.device, dtype=x.dtype)
        topk[(M,)](x, o, N, K=4, BLOCK=triton.next_power_of_2(N))
        return o
