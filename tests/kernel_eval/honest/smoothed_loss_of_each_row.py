"""A smoothed cross entropy whose labels are never left out: torch's own code asks for its default there."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(x, y, label_smoothing=0.1, reduction="none")


def get_inputs():
    return [torch.randn(128, 60), torch.randint(0, 60, (128,))]


@triton.jit
def ce(X, Y, OUT, V, BV: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, BV)
    x = tl.load(X + r * V + o, mask=o < V, other=float("-inf"))
    m = tl.max(x, 0)
    lse = m + tl.log(tl.sum(tl.exp(x - m), 0))
    y = tl.load(X + r * V + tl.load(Y + r))
    s = tl.sum(tl.where(o < V, x, 0.0), 0)
    tl.store(OUT + r, 0.9 * (lse - y) + 0.1 * (lse - s / V))


@triton.jit
def mean(X, OUT, N, BN: tl.constexpr):
    i = tl.arange(0, BN)
    tl.store(OUT, tl.sum(tl.load(X + i, mask=i < N, other=0.0), 0) / N)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        n, v = x.shape
        o = torch.empty(n, device=x.device)
        ce[(n,)](x.contiguous(), y.contiguous(), o, v, BV=triton.next_power_of_2(v))
        return o
