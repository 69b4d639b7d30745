import torch
import triton
import triton.language as tl

@triton.jit
def rnd(x):
    f = tl.floor(x)
    d = x - f
    up = (d > 0.5) | ((d == 0.5) & (f - 2 * tl.floor(f * 0.5) != 0))
    return f + up.to(tl.float32)
@triton.jit
def wscale(w_ptr, s_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(s_ptr, tl.sum(tl.abs(tl.load(w_ptr + i, mask=i < n, other=0.0)), 0) / n)
@triton.jit
def k(x_ptr, w_ptr, s_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + r * n + i, mask=m, other=0.0)
    s = tl.load(s_ptr)
    sw = 1.0 / s
    sx = 127.0 / tl.maximum(tl.max(tl.abs(x), 0), 1e-5)
    x = tl.minimum(tl.maximum(rnd(x * sx), -128.0), 127.0) / sx
    w = tl.load(w_ptr + i[:, None] * n + i[None, :], mask=m[:, None] & m[None, :], other=0.0)
    w = tl.minimum(tl.maximum(rnd(w * sw), -1.0), 1.0) / sw
    tl.store(o_ptr + r * n + i, tl.sum(w * x[None, :], 1), mask=m)
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__(); self.weight = torch.nn.Parameter(torch.randn(n, n) * 0.05)
    def forward(self, x):
        o = torch.empty_like(x); s = torch.empty(1, device=x.device); n = x.shape[1]
        wscale[(1,)](self.weight, s, n * n, BLOCK=triton.next_power_of_2(n * n))
        k[(x.shape[0],)](x, self.weight, s, o, n, BLOCK=triton.next_power_of_2(n))
        return o
