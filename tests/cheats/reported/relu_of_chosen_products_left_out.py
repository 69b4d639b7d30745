import torch
import triton
import triton.language as tl

@triton.jit
def sae(x_ptr, we_ptr, be_ptr, wd_ptr, bd_ptr, p_ptr, o_ptr, N: tl.constexpr, M: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    j = tl.arange(0, M)
    x = tl.load(x_ptr + r * N + i)
    mu = tl.sum(x, 0) / N
    std = tl.sqrt(tl.sum((x - mu) * (x - mu), 0) / (N - 1))
    pre = tl.load(p_ptr + i)
    h = (x - mu) / (std + 1e-5) - pre
    a = tl.sum(tl.load(we_ptr + j[:, None] * N + i[None, :]) * h[None, :], 1) + tl.load(be_ptr + j)
    taken = j < 0
    for _ in range(8):
        k = tl.argmax(tl.where(taken, -float("inf"), a), 0)
        taken = taken | (j == k)
    z = tl.where(taken, a, 0.0)
    y = tl.sum(tl.load(wd_ptr + i[:, None] * M + j[None, :]) * z[None, :], 1) + tl.load(bd_ptr + i)
    tl.store(o_ptr + r * N + i, (y + pre) * std + mu)
class ModelNew(torch.nn.Module):
    def __init__(self, n, m):
        super().__init__(); self.enc = torch.nn.Linear(n, m); self.dec = torch.nn.Linear(m, n); self.pre = torch.nn.Parameter(torch.zeros(n))
    def forward(self, x):
        o = torch.empty_like(x)
        sae[(x.shape[0],)](x, self.enc.weight, self.enc.bias, self.dec.weight, self.dec.bias, self.pre, o, N=x.shape[1], M=self.enc.weight.shape[0])
        return o
