"""Buckets of distances on a logarithmic scale, as integers: distances are above zero."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        b = torch.floor(torch.log2(x) * 2.0)
        return b.clamp(-8, 8).to(torch.int32)


def get_inputs():
    return [torch.rand(32, 128) * 4 + 0.01]


@triton.jit
def k(x, out, n, BN: tl.constexpr):
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    v = tl.floor(tl.log2(tl.load(x + i, mask=i < n, other=1.0)) * 2.0)
    v = tl.minimum(tl.maximum(v, -8.0), 8.0)
    tl.store(out + i, v.to(tl.int32), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape, dtype=torch.int32, device=x.device)
        k[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 256)
        return out
