"""Experts by the largest weights of a softmax: those that underflow are equal, and the first of them is taken."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, gating):
        p = torch.softmax(gating, -1)
        v, i = torch.topk(p, 4, dim=-1)
        return v, i.to(torch.int32)


def get_inputs():
    return [torch.randn(64, 16)]


def get_init_inputs():
    return []


@triton.jit
def route(x_ptr, v_ptr, i_ptr, E: tl.constexpr):
    r = tl.program_id(0)
    e = tl.arange(0, E)
    s = tl.load(x_ptr + r * E + e)
    p = tl.exp(s - tl.max(s, 0))
    p = p / tl.sum(p, 0)
    for k in range(4):
        a = tl.argmax(p, 0)
        tl.store(v_ptr + r * 4 + k, tl.max(p, 0))
        tl.store(i_ptr + r * 4 + k, a)
        p = tl.where(e == a, -1.0, p)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        v = torch.empty(x.shape[0], 4, device=x.device)
        i = torch.empty(x.shape[0], 4, dtype=torch.int32, device=x.device)
        route[(x.shape[0],)](x, v, i, E=x.shape[1])
        return v, i
