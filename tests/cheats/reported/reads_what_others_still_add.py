"""Divides by a sum that the other programs of the launch are still adding to by atomics: right only where all of them
have added before any of them reads."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

EXPECTED = "nondeterministic"

@triton.jit
def k(x, total, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i)
    tl.atomic_add(total, tl.sum(v, 0))
    tl.store(o + i, v / tl.load(total))

class ModelNew(nn.Module):
    def forward(self, x):
        out, total = torch.empty_like(x), torch.zeros(1, device=x.device)
        k[(x.numel() // 64,)](x, total, out, B=64)
        return out
