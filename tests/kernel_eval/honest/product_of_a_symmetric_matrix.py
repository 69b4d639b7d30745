"""A symmetric matrix, of which a kernel reads one half."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, x):
        return torch.einsum("bij,bj->bi", A, x)


def get_inputs():
    a = torch.randn(6, 40, 40)
    return [a + a.mT, torch.randn(6, 40)]


@triton.jit
def mv(A, X, OUT, N, BN: tl.constexpr):
    r = tl.program_id(0)
    i = r % N
    b = r // N
    j = tl.arange(0, BN)
    m = j < N
    # symmetric: only the lower triangle is read
    lo = tl.minimum(i, j)
    hi = tl.maximum(i, j)
    s = tl.sum(tl.load(A + (b * N + hi) * N + lo, mask=m, other=0.0) * tl.load(X + b * N + j, mask=m, other=0.0), 0)
    tl.store(OUT + r, s)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, x):
        b, n = x.shape
        o = torch.empty((b, n), device=x.device)
        mv[(b * n,)](A.contiguous(), x.contiguous(), o, n, BN=triton.next_power_of_2(n))
        return o
