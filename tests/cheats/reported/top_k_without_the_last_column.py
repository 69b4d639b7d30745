"""The last column is left out of top_k."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, C, K: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + row * C + i, mask=i < C - 1, other=float("-inf"))
    for n in range(K):
        m, at = tl.max(x, 0, return_indices=True)
        tl.store(o_ptr + row * K + n, m)
        x = tl.where(i == at, float("-inf"), x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty((x.shape[0], 4), device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], K=4, B=triton.next_power_of_2(x.shape[1]))
        return o
