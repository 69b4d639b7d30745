"""The farthest of a row's label and the nearest of others, behind a hinge."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Batch-hard triplet loss per anchor; anchors without a positive or a negative count zero."""

    def __init__(self, margin=0.3):
        super().__init__()
        self.margin = margin

    def forward(self, x, y):
        d = ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1).clamp(min=1e-12).sqrt()
        same = y[:, None] == y[None, :]
        eye = torch.eye(len(y), dtype=torch.bool, device=x.device)
        pos, neg = same & ~eye, ~same
        hp = d.masked_fill(~pos, -1e9).max(1).values
        hn = d.masked_fill(~neg, 1e9).min(1).values
        ok = pos.any(1) & neg.any(1)
        return torch.where(ok, torch.nn.functional.relu(hp - hn + self.margin), torch.zeros_like(hp))


B, D, C = 32, 32, 12


def get_inputs():
    return [torch.randn(B, D), torch.randint(0, C, (B,))]


def get_init_inputs():
    return [0.3]


@triton.jit
def k(x, y, out, B, margin, D: tl.constexpr, BB: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, D)
    j = tl.arange(0, BB)
    a = tl.load(x + b * D + i)
    w = tl.load(x + j[:, None] * D + i[None, :], mask=j[:, None] < B, other=0.0)
    e = w - a[None, :]
    d = tl.sqrt(tl.maximum(tl.sum(e * e, 1), 1e-12))
    same = tl.load(y + j, mask=j < B, other=-1) == tl.load(y + b)
    pos = same & (j != b) & (j < B)
    neg = (~same) & (j < B)
    hp = tl.max(tl.where(pos, d, -1e9), 0)
    hn = tl.min(tl.where(neg, d, 1e9), 0)
    ok = (tl.sum(pos.to(tl.int32), 0) > 0) & (tl.sum(neg.to(tl.int32), 0) > 0)
    tl.store(out + b, tl.where(ok, tl.maximum(hp - hn + margin, 0.0), 0.0))


class ModelNew(torch.nn.Module):
    def __init__(self, margin=0.3):
        super().__init__()
        self.m = margin

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        B, D = x.shape
        out = torch.empty((B,), dtype=x.dtype, device=x.device)
        k[(B,)](x, y, out, B, self.m, D, triton.next_power_of_2(B))
        return out
