"""The last state of a recurrence by tl.reduce with an operator that does not commute: a device combines other threads first (shfl 16, 8, ...), and threads hold elements that lie apart."""

import torch
import triton
import triton.language as tl

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


class ModelNew(torch.nn.Module):
    def forward(self, a, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](a, x, o, C=x.shape[1])
        return o
