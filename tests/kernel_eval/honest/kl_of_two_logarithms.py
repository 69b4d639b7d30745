"""A divergence of probabilities as a difference of their logarithms."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, p, q):
        return (p * torch.log(p / q)).sum(-1)


def get_inputs():
    return [torch.softmax(torch.randn(32, 64), -1), torch.softmax(torch.randn(32, 64), -1)]


@triton.jit
def kl(p_ptr, q_ptr, o_ptr, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    p = tl.load(p_ptr + r * N + i, mask=m, other=1.0)
    q = tl.load(q_ptr + r * N + i, mask=m, other=1.0)
    tl.store(o_ptr + r, tl.sum(p * (tl.log(p) - tl.log(q)), 0))


class ModelNew(nn.Module):
    def forward(self, p, q):
        o = torch.empty(p.shape[0], device=p.device)
        kl[(p.shape[0],)](p, q, o, p.shape[1], B=triton.next_power_of_2(p.shape[1]))
        return o
