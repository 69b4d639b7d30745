"""An embedding: rows by indices."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 24)

    def forward(self, indices):
        return self.embedding(indices)


def get_inputs():
    return [torch.randint(0, 50, (7, 5))]


@triton.jit
def gather(index_ptr, weight_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    source = tl.load(index_ptr + row)
    values = tl.load(weight_ptr + source * columns + column, mask=column < columns)
    tl.store(out_ptr + row * columns + column, values, mask=column < columns)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 24)

    def forward(self, indices):
        weight = self.embedding.weight
        out = torch.empty((*indices.shape, weight.shape[1]), device=indices.device)
        gather[(indices.numel(),)](indices, weight, out, weight.shape[1], BLOCK=32)
        return out
