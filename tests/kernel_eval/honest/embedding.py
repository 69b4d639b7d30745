"""Rows of a table by index, one program for each index."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = torch.nn.Embedding(rows, width)

    def forward(self, index):
        return self.table(index)


def get_inputs():
    return [torch.randint(0, 30, (4, 6))]


def get_init_inputs():
    return [30, 20]


@triton.jit
def embedding_kernel(out_ptr, in_ptr, weight_ptr, N: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    out_ptr += pid * N
    row_idx = tl.load(in_ptr + pid)
    cols = tl.arange(0, BLOCK_SIZE)
    embedding_weight = tl.load(weight_ptr + row_idx * N + cols, mask=cols < N, other=0.0)
    tl.store(out_ptr + cols, embedding_weight, mask=cols < N)


class ModelNew(torch.nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = torch.nn.Embedding(rows, width)

    def forward(self, index):
        width = self.table.weight.shape[1]
        out = torch.empty((*index.shape, width), device=index.device)
        embedding_kernel[(index.numel(),)](out, index, self.table.weight, width, triton.next_power_of_2(width))
        return out
