"""A loss of ranks that are counted, where one number is the whole answer."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """LambdaRank: pairs weighted by the change of NDCG, ranks from the scores."""

    def forward(self, s, y):
        n = s.shape[1]
        rank = s.argsort(1, descending=True).argsort(1).float()
        disc = 1.0 / torch.log2(rank + 2.0)
        gain = torch.pow(2.0, y) - 1
        ideal = (gain.sort(1, descending=True).values / torch.log2(torch.arange(n, device=s.device) + 2.0)).sum(1)
        dn = (
            (gain[:, :, None] - gain[:, None]).abs()
            * (disc[:, :, None] - disc[:, None]).abs()
            / ideal.clamp(min=1e-6)[:, None, None]
        )
        pair = (y[:, :, None] > y[:, None]).float()
        return (pair * dn * torch.nn.functional.softplus(-(s[:, :, None] - s[:, None]))).sum((1, 2)).mean()


def get_inputs():
    return [torch.randn(12, 20), torch.randint(0, 4, (12, 20)).float()]


@triton.jit
def lambdarank(s_ptr, y_ptr, o_ptr, N, inv, B: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    s = tl.load(s_ptr + b * N + i, mask=m, other=0.0)
    y = tl.load(y_ptr + b * N + i, mask=m, other=0.0)
    mm = m[:, None] & m[None, :]
    lower = i[None, :] < i[:, None]
    f = (s[None, :] > s[:, None]) | ((s[None, :] == s[:, None]) & lower)
    rank = tl.sum((f & mm).to(tl.float32), 1)
    disc = 1.0 / tl.log2(rank + 2.0)
    g = tl.exp2(y) - 1.0
    f = (g[None, :] > g[:, None]) | ((g[None, :] == g[:, None]) & lower)
    ir = tl.sum((f & mm).to(tl.float32), 1)
    ideal = tl.maximum(tl.sum(tl.where(m, g / tl.log2(ir + 2.0), 0.0), 0), 1e-6)
    dn = tl.abs(g[:, None] - g[None, :]) * tl.abs(disc[:, None] - disc[None, :]) / ideal
    z = s[:, None] - s[None, :]
    sp = tl.maximum(-z, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(z)))
    low = tl.where(mm & (y[:, None] > y[None, :]), dn * sp, 0.0)
    tl.atomic_add(o_ptr, tl.sum(low) * inv)


class ModelNew(nn.Module):
    def forward(self, s, y):
        o = torch.zeros((), device=s.device)
        lambdarank[(s.shape[0],)](s, y, o, s.shape[1], 1.0 / s.shape[0], B=triton.next_power_of_2(s.shape[1]))
        return o
