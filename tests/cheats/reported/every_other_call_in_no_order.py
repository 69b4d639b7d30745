"""A reduction in order in every other call: only every other trial was played in another one."""


import torch
import triton
import triton.language as tl

EXPECTED = "nondeterministic"


EXPECTED = "nondeterministic"


@triton.jit
def then(a1, x1, a2, x2):
    return a1 * a2, a2 * x1 + x2


@triton.jit
def k(a_ptr, x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, C)
    a = tl.sigmoid(tl.load(a_ptr + row * C + i))
    x = tl.load(x_ptr + row * C + i)
    _, h = tl.reduce((a, x), 0, then)
    tl.store(o_ptr + row, h)


@triton.jit
def honest(a_ptr, x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, C)
    a = tl.sigmoid(tl.load(a_ptr + row * C + i))
    x = tl.load(x_ptr + row * C + i)
    _, h = tl.associative_scan((a, x), 0, then)
    tl.store(o_ptr + row + 0 * i, h, mask=i == C - 1)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, a, x):
        o = torch.empty(x.shape[0], device=x.device)
        self.calls += 1
        (honest if self.calls % 2 else k)[(x.shape[0],)](a, x, o, C=x.shape[1])
        return o
