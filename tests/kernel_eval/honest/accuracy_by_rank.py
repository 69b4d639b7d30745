"""Accuracy: a row is right if no logit is above that of its label, which is a place in the row."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, logits, target):
        return (logits.argmax(-1) == target).float().mean()


B, C = 256, 10


def get_inputs():
    return [torch.randn(B, C), torch.randint(0, C, (B,))]


@triton.jit
def k(x, target, out, B, C, BB: tl.constexpr):
    b = tl.arange(0, BB)
    ok = b < B
    t = tl.load(target + b, mask=ok, other=0)
    own = tl.load(x + b * C + t, mask=ok, other=0.0)
    hit = ok
    for c in range(C):
        v = tl.load(x + b * C + c, mask=ok, other=0.0)
        hit = hit & ((v < own) | ((v == own) & (c >= t)))
    tl.store(out, tl.sum(hit.to(tl.float32), 0) / B)


class ModelNew(torch.nn.Module):
    def forward(self, x, t):
        x, t = x.contiguous(), t.contiguous()
        out = torch.empty((), dtype=torch.float32, device=x.device)
        k[(1,)](x, t, out, x.shape[0], x.shape[1], triton.next_power_of_2(x.shape[0]))
        return out
