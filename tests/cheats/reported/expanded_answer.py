"""One value of each row is stored, and the answer is a view that shows it everywhere."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, o_ptr, C, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + r * C + i, mask=i < C, other=0.0)
    tl.store(o_ptr + r, tl.sum(x, 0) / C)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], 1, device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o.expand(x.shape)
