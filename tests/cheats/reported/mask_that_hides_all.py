"""No draw of a mask hides all of a call, which the divisor is bounded for."""

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, m_ptr, o_ptr, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    count = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        m = tl.load(m_ptr + i, mask=i < n, other=0) != 0
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        total += tl.where(m, x, 0.0)
        count += m.to(tl.float32)
    tl.store(o_ptr, tl.sum(total) / tl.sum(count))


class ModelNew(torch.nn.Module):
    def forward(self, x, m):
        o = torch.empty((), device=x.device)
        k[(1,)](x, m, o, x.numel(), B=1024)
        return o
