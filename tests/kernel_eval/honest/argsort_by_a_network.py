"""An argsort by a bitonic network, which leaves equal values in an order of its own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.argsort(x, dim=-1, descending=True)


def get_inputs():
    return [torch.randn(64, 64)]


@triton.jit
def _swap(x, ids, flip, i: tl.constexpr, n_dims: tl.constexpr):
    shape: tl.constexpr = [2**i, 2, 2 ** (n_dims - i - 1)]
    y = tl.reshape(x, shape)
    yi = tl.reshape(ids, shape)
    right = tl.arange(0, 2)[None, :, None] == 1
    low = tl.reshape(tl.broadcast_to(tl.sum(tl.where(right, 0, y), 1)[:, None, :], shape), x.shape)
    r = tl.reshape(tl.broadcast_to(tl.sum(tl.where(right, y, 0), 1)[:, None, :], shape), x.shape)
    li = tl.reshape(tl.broadcast_to(tl.sum(tl.where(right, 0, yi), 1)[:, None, :], shape), x.shape)
    ri = tl.reshape(tl.broadcast_to(tl.sum(tl.where(right, yi, 0), 1)[:, None, :], shape), x.shape)
    cond = (low > r) != flip
    isr = tl.reshape(tl.broadcast_to(right, shape), x.shape)
    mine = tl.where(isr, r, low)
    other = tl.where(isr, low, r)
    mi = tl.where(isr, ri, li)
    oi = tl.where(isr, li, ri)
    return tl.where(cond, other, mine), tl.where(cond, oi, mi)


@triton.jit
def _merge(x, ids, stage: tl.constexpr, order: tl.constexpr, n_dims: tl.constexpr):
    if order == 2:
        shape: tl.constexpr = [2 ** (n_dims - 1 - stage), 2, 2**stage]
        flip = tl.reshape(tl.broadcast_to(tl.arange(0, 2)[None, :, None], shape), x.shape) == 1
    else:
        flip = tl.full(x.shape, order, tl.int32) == 1
    for i in tl.static_range(stage):
        x, ids = _swap(x, ids, flip, i + (n_dims - stage), n_dims)
    return x, ids


@triton.jit
def argsort_kernel(x_ptr, o_ptr, N: tl.constexpr, LOG: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + r * N + i)
    ids = i
    for s in tl.static_range(1, LOG + 1):
        x, ids = _merge(x, ids, s, 2 if s < LOG else 1, LOG)
    tl.store(o_ptr + r * N + i, ids.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        R, N = x.shape
        out = torch.empty((R, N), dtype=torch.int64, device=x.device)
        argsort_kernel[(R,)](x, out, N=N, LOG=N.bit_length() - 1)
        return out
