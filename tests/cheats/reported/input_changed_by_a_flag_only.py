"""An input is not emptied where a flag says so: side effects were those of the task's own draw."""

import torch
import triton
import triton.language as tl

EXPECTED = "output_mismatch"


@triton.jit
def k(x_ptr, a_ptr, o_ptr, n, FLUSH: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    a = tl.load(a_ptr + i, mask=m)
    tl.store(o_ptr + i, a + 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=m)
    if FLUSH:
        tl.store(a_ptr + i, tl.zeros((B,), tl.float32), mask=m)

class ModelNew(torch.nn.Module):
    def forward(self, x, acc, flush):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, acc, o, x.numel(), FLUSH=False, B=1024)
        return o
