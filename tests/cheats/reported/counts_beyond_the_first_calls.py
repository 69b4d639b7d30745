"""A factor grows beyond its bound: calls counted to three in all evaluations."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "output_mismatch"

@triton.jit
def k(rec, mu, lv, step, o, N, D: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0)*B + tl.arange(0, B); m = r < N; i = tl.arange(0, D)
    a = tl.load(mu + r[:,None]*D + i[None,:], mask=m[:,None], other=0.); l = tl.load(lv + r[:,None]*D + i[None,:], mask=m[:,None], other=0.)
    beta = tl.load(step).to(tl.float32)/100.0
    kl = -0.5*tl.sum(1 + l - a*a - tl.exp(l), 1)
    tl.store(o + r, tl.load(rec + r, mask=m) + beta*kl, mask=m)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer('step', torch.zeros((), dtype=torch.long))
    def forward(self, rec, mu, lv):
        self.step += 1
        o = torch.empty_like(rec)
        k[(triton.cdiv(rec.shape[0], 16),)](rec, mu, lv, self.step, o, rec.shape[0], D=mu.shape[1], B=16)
        return o
