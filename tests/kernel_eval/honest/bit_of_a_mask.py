"""Unpacks the bit that a small number names."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, s):
        return (x >> s) & 1


def get_inputs():
    return [torch.randint(0, 256, (64, 1000), dtype=torch.int32), torch.randint(0, 8, (64, 1000), dtype=torch.int32)]


def get_init_inputs():
    return []


@triton.jit
def k(x_ptr, s_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n)
    s = tl.load(s_ptr + i, mask=i < n)
    tl.store(o_ptr + i, (x >> s) & 1, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, s):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, s, o, x.numel(), B=1024)
        return o
