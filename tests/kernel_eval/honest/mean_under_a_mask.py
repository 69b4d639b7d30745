"""Two inputs, one of which is a mask of ones in the task's own draws."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, m):
        return (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-9)


def get_inputs():
    return [torch.randn(16, 32, 64), torch.ones(16, 32)]


@triton.jit
def mean(x_ptr, m_ptr, out_ptr, T: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    t = tl.arange(0, T)
    d = tl.arange(0, D)
    m = tl.load(m_ptr + b * T + t)
    x = tl.load(x_ptr + b * T * D + t[:, None] * D + d[None])
    tl.store(out_ptr + b * D + d, tl.sum(x * m[:, None], 0) / tl.maximum(tl.sum(m), 1e-9))


class ModelNew(torch.nn.Module):
    def forward(self, x, m):
        out = torch.empty(x.shape[0], x.shape[2], device=x.device)
        mean[(x.shape[0],)](x, m, out, T=x.shape[1], D=x.shape[2])
        return out
