"""A reshape around the kernel, which is a view."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, 16, affine=False)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(2, 16, 5, 5)]


@triton.jit
def normalise(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + group * n + index, mask=index < n, other=0.0)
    centred = tl.where(index < n, x - tl.sum(x, axis=0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + 1e-5)
    tl.store(out_ptr + group * n + index, centred * scale, mask=index < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        groups = x.reshape(x.shape[0] * 4, -1)
        out = torch.empty_like(groups)
        normalise[(groups.shape[0],)](groups, out, groups.shape[1], BLOCK=128)
        return out.view(x.shape)
