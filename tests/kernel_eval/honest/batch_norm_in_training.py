"""A batch norm in training: a kernel gives the statistics, of which torch keeps the running ones."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        return torch.relu_(self.bn(x))


def get_inputs():
    return [torch.randn(128, 64)]


@triton.jit
def batch_norm(x_ptr, w_ptr, b_ptr, o_ptr, mean_ptr, var_ptr, C, eps, N: tl.constexpr):
    c = tl.program_id(0)
    at = tl.arange(0, N) * C + c
    x = tl.load(x_ptr + at)
    mean = tl.sum(x, 0) / N
    d = x - mean
    var = tl.sum(d * d, 0) / N
    y = d / tl.sqrt(var + eps) * tl.load(w_ptr + c) + tl.load(b_ptr + c)
    tl.store(o_ptr + at, tl.maximum(y, 0.0))
    tl.store(mean_ptr + c, mean)
    tl.store(var_ptr + c, var * (N / (N - 1.0)))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        bn, out = self.bn, torch.empty_like(x)
        mean, var = torch.empty_like(bn.running_mean), torch.empty_like(bn.running_var)
        batch_norm[(64,)](x, bn.weight, bn.bias, out, mean, var, x.shape[1], bn.eps, N=x.shape[0])
        bn.running_mean.mul_(1 - bn.momentum).add_(mean, alpha=bn.momentum)
        bn.running_var.lerp_(var, bn.momentum)
        return out
