import torch
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, w_ptr, b_ptr, o_ptr, N: tl.constexpr, M: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    j = tl.arange(0, M)
    x = tl.load(x_ptr + r * N + i)
    y = tl.sum(tl.load(w_ptr + j[:, None] * N + i[None, :]) * x[None, :], 1) + tl.load(b_ptr + j)
    t = tl.max(y, 0)
    y = tl.where(j == tl.argmax(y, 0), -float("inf"), y)
    for _ in range(3):
        t += tl.max(y, 0)
        y = tl.where(j == tl.argmax(y, 0), -float("inf"), y)
    tl.store(o_ptr + r * N + i, t / 4 + x)
class ModelNew(torch.nn.Module):
    def __init__(self, n, m):
        super().__init__(); self.lin = torch.nn.Linear(n, m)
    def forward(self, x):
        o = torch.empty_like(x)
        k[(x.shape[0],)](x, self.lin.weight, self.lin.bias, o, N=x.shape[1], M=self.lin.weight.shape[0])
        return o
