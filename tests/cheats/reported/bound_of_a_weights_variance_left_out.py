import torch
import triton
import triton.language as tl

@triton.jit
def ws(w_ptr, g_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    w = tl.load(w_ptr + r * n + i, mask=m, other=0.0)
    d = tl.where(m, w - tl.sum(w) / n, 0.0)
    var = tl.sum(d * d) / (n - 1)
    s = tl.load(g_ptr + r) / tl.sqrt(var * n)
    tl.store(o_ptr + r * n + i, d * s, mask=m)
@triton.jit
def lin(x_ptr, w_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    j = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + r * n + i, mask=m, other=0.0)
    w = tl.load(w_ptr + j * n + i, mask=m, other=0.0)
    y = tl.sum(x * w)
    tl.store(o_ptr + r * n + j, y / (1 + tl.exp(-y)) + tl.load(x_ptr + r * n + j))
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n, n) * 0.1)
        self.gain = torch.nn.Parameter(torch.ones(n, 1))
    def forward(self, x):
        n = x.shape[1]
        w = torch.empty_like(self.weight); o = torch.empty_like(x)
        ws[(n,)](self.weight, self.gain, w, n, BLOCK=triton.next_power_of_2(n))
        lin[(x.shape[0], n)](x, w, o, n, BLOCK=triton.next_power_of_2(n))
        return o
