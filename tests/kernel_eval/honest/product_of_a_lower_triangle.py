"""A lower triangle, of which a kernel reads no more."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, L, x):
        return torch.einsum("bij,bj->bi", L, x)


def get_inputs():
    return [torch.randn(6, 40, 40).tril(), torch.randn(6, 40)]


@triton.jit
def mv(L, X, OUT, N, BN: tl.constexpr):
    r = tl.program_id(0)
    i = r % N
    b = r // N
    j = tl.arange(0, BN)
    m = j <= i  # lower triangular
    s = tl.sum(tl.load(L + r * N + j, mask=m, other=0.0) * tl.load(X + b * N + j, mask=m, other=0.0), 0)
    tl.store(OUT + r, s)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, L, x):
        b, n = x.shape
        o = torch.empty((b, n), device=x.device)
        mv[(b * n,)](L.contiguous(), x.contiguous(), o, n, BN=triton.next_power_of_2(n))
        return o
