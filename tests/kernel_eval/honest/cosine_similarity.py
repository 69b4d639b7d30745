"""The cosine of the angle between rows, three sums in one pass."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.nn.functional.cosine_similarity(a, b, dim=1)


def get_inputs():
    return [torch.randn(40, 70), torch.randn(40, 70)]


@triton.jit
def cosine(a_ptr, b_ptr, out_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    ab = 0.0
    aa = 0.0
    bb = 0.0
    for start in range(0, N, BLOCK):
        i = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * N + i, mask=i < N, other=0.0)
        b = tl.load(b_ptr + row * N + i, mask=i < N, other=0.0)
        ab += tl.sum(a * b)
        aa += tl.sum(a * a)
        bb += tl.sum(b * b)
    norm = tl.maximum(tl.sqrt(aa), eps) * tl.maximum(tl.sqrt(bb), eps)
    tl.store(out_ptr + row, ab / norm)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], device=a.device)
        cosine[(a.shape[0],)](a, b, out, a.shape[1], 1e-8, BLOCK=32)
        return out
