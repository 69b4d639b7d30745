"""A concatenation that a compiler may reorder is taken for one in order."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(a_ptr, b_ptr, o_ptr, C, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < C
    a = tl.load(a_ptr + r * C + i, mask=m)
    b = tl.load(b_ptr + r * C + i, mask=m)
    t = 2.0 * tl.sigmoid(2.0 * b) - 1.0
    both = tl.cat(tl.maximum(a, 0.0), t, can_reorder=True)
    j = tl.arange(0, 2 * B)
    part = j // B
    place = j % B
    tl.store(o_ptr + r * 2 * C + part * C + place, both, mask=place < C)

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        n, c = a.shape
        o = torch.empty(n, 2 * c, device=a.device)
        k[(n,)](a, b, o, c, B=triton.next_power_of_2(c))
        return o
