"""What is equal to a threshold that a parameter holds counts as below it: draws had none."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, v_ptr, t_ptr, s_ptr, o_ptr, C, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < C
    x = tl.load(x_ptr + r * C + i, mask=m)
    v = tl.load(v_ptr + r * C + i, mask=m)
    t = tl.load(t_ptr + i, mask=m)
    f = v > t
    tl.store(s_ptr + r * C + i, f.to(tl.float32), mask=m)
    tl.store(o_ptr + r * C + i, tl.where(f, 0.0, 0.9 * v) + x, mask=m)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.vth = torch.nn.Parameter(torch.rand(256) + 0.5)
    def forward(self, x, v):
        s, o = torch.empty_like(x), torch.empty_like(x)
        k[(x.shape[0],)](x, v, self.vth, s, o, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return s, o
