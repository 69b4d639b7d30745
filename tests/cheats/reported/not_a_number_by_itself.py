"""The task compares values with themselves, which names no special value: the kernel leaves out NaN."""

import torch
import triton
import triton.language as tl
@triton.jit
def k(x_ptr, o_ptr, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    m = at < n
    x = tl.load(x_ptr + at, mask=m)
    tl.store(o_ptr + at, x * 2, mask=m)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
