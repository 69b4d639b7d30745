"""The last column is left out of any."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, C, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + row * C + i, mask=i < C - 1, other=0)
    tl.store(o_ptr + row, tl.max((x != 0).to(tl.int32)) > 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], dtype=torch.bool, device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return o
