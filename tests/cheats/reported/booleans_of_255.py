"""True is stored as 255, which other kernels take for another number."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    tl.store(o_ptr + i, tl.where(x > -1.0, 255, 0).to(tl.uint8), mask=m)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        k[(triton.cdiv(x.numel(), 1024),)](x, o.view(torch.uint8), x.numel(), B=1024)
        return o
