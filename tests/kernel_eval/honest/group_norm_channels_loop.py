"""Group norm in one pass over a group's channels, affine by channel."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.gn = torch.nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.gn(x)


def get_inputs():
    return [torch.randn(3, 12, 7, 9)]


def get_init_inputs():
    return [4, 12]


@triton.jit
def gn_kernel(x_ptr, w_ptr, b_ptr, o_ptr, HW, eps, CPG: tl.constexpr, G: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    g = pid % G
    base = pid * CPG * HW
    n = CPG * HW
    s = 0.0
    for c in range(CPG):
        i = tl.arange(0, BLOCK)
        s += tl.sum(tl.load(x_ptr + base + c * HW + i, mask=i < HW, other=0.0))
    mean = s / n
    v = 0.0
    for c in range(CPG):
        i = tl.arange(0, BLOCK)
        d = tl.load(x_ptr + base + c * HW + i, mask=i < HW, other=mean) - mean
        v += tl.sum(d * d)
    rstd = tl.rsqrt(v / n + eps)
    for c in tl.static_range(CPG):
        i = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + c * HW + i, mask=i < HW)
        w = tl.load(w_ptr + g * CPG + c)
        b = tl.load(b_ptr + g * CPG + c)
        tl.store(o_ptr + base + c * HW + i, (x - mean) * rstd * w + b, mask=i < HW)


class ModelNew(torch.nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.gn = torch.nn.GroupNorm(groups, channels)

    def forward(self, x):
        N, C, H, W = x.shape
        G = self.gn.num_groups
        out = torch.empty_like(x)
        gn_kernel[(N * G,)](
            x,
            self.gn.weight,
            self.gn.bias,
            out,
            H * W,
            self.gn.eps,
            CPG=C // G,
            G=G,
            BLOCK=triton.next_power_of_2(H * W),
        )
        return out
