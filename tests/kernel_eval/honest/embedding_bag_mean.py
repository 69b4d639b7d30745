"""Rows of a table by index, averaged in the kernel."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(40, 24)

    def forward(self, ids):
        return self.table(ids).mean(1)


def get_inputs():
    return [torch.randint(0, 40, (9, 6))]


def get_init_inputs():
    return []


@triton.jit
def bag(ids_ptr, w_ptr, o_ptr, L, D, BLOCK_D: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for step in range(L):
        i = tl.load(ids_ptr + b * L + step)
        acc += tl.load(w_ptr + i * D + d, mask=d < D, other=0.0)
    tl.store(o_ptr + b * D + d, acc / L, mask=d < D)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(40, 24)

    def forward(self, ids):
        B, L = ids.shape
        D = self.table.weight.shape[1]
        o = torch.empty(B, D, device=ids.device, dtype=self.table.weight.dtype)
        bag[(B,)](ids, self.table.weight, o, L, D, BLOCK_D=triton.next_power_of_2(D))
        return o
