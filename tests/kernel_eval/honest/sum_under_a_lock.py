"""Partial sums are added under a lock, as in the layer norm of Triton tutorials (backward)."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=0)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


@triton.jit
def k(x_ptr, o_ptr, lock_ptr, R, C, G: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    lock = row % G
    c = tl.arange(0, B)
    m = c < C
    x = tl.load(x_ptr + row * C + c, mask=m, other=0.0)
    lock_ptr += lock
    count_ptr = lock_ptr + G
    o_ptr = o_ptr + lock * C + c
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    if count == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        x += tl.load(o_ptr, mask=m)
    tl.store(o_ptr, x, mask=m)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def fin(p_ptr, o_ptr, C, G: tl.constexpr, B: tl.constexpr):
    c = tl.arange(0, B)
    g = tl.arange(0, G)
    p = tl.load(p_ptr + g[:, None] * C + c[None, :], mask=c[None, :] < C, other=0.0)
    tl.store(o_ptr + c, tl.sum(p, 0), mask=c < C)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        R, C = x.shape
        locks = torch.zeros(2 * 8, dtype=torch.int32, device=x.device)
        p = torch.zeros((8, C), device=x.device)
        o = torch.empty(C, device=x.device)
        k[(R,)](x, p, locks, R, C, G=8, B=triton.next_power_of_2(C))
        fin[(1,)](p, o, C, G=8, B=triton.next_power_of_2(C))
        return o
