"""Sums over rows whose end is masked, without a default."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(16, 100)]


@triton.jit
def row_sums(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + row * N + columns, mask=columns < N), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        row_sums[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
