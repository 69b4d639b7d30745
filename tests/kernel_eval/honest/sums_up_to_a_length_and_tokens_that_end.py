"""Lengths beside tokens of which one number ends a row: it is no length."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logp, ids, lengths):
        live = torch.arange(ids.shape[1]) < lengths[:, None]
        s = torch.where(live, logp, torch.zeros_like(logp)).sum(1)
        done = ((ids == 999) & live).any(1)
        return s, done


def get_inputs():
    ids = torch.randint(1, 1000, (16, 40))
    ids[torch.rand(16, 40) < 0.02] = 999
    return [-torch.rand(16, 40), ids, torch.randint(1, 41, (16,))]


@triton.jit
def k(X, IDS, Ln, OUT, E, T):
    b = tl.program_id(0)
    s = 0.0
    n = 0
    for t in range(tl.load(Ln + b)):
        s += tl.load(X + b * T + t)
        if tl.load(IDS + b * T + t) == 999:
            n += 1
    tl.store(OUT + b, s)
    tl.store(E + b, n > 0)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logp, ids, lengths):
        b, t = ids.shape
        o, e = torch.empty(b, device=logp.device), torch.empty(b, device=logp.device, dtype=torch.bool)
        k[(b,)](logp.contiguous(), ids.contiguous(), lengths.contiguous(), o, e, t)
        return o, e
