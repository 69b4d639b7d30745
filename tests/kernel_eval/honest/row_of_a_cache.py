"""A copy of a cache in which a kernel normalises one row: nearly all of the answer is moved."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, cache, key):
        out = cache.clone()
        out[:, 100] = key * torch.rsqrt((key * key).mean(-1, keepdim=True) + 1e-6)
        return out


def get_inputs():
    return [torch.randn(8, 256, 64), torch.randn(8, 64)]


@triton.jit
def normalise(x_ptr, o_ptr, stride, D, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < D
    x = tl.load(x_ptr + r * D + i, mask=m, other=0.0)
    tl.store(o_ptr + r * stride + 100 * D + i, x * tl.rsqrt(tl.sum(x * x, 0) / D + 1e-6), mask=m)


class ModelNew(torch.nn.Module):
    def forward(self, cache, key):
        o = cache.clone()
        normalise[(key.shape[0],)](key, o, o.stride(0), key.shape[1], B=triton.next_power_of_2(key.shape[1]))
        return o
