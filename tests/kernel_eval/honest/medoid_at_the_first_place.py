"""A row of another input where a median lies, at the first of equal places."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """The row of values beside the one whose score is the median."""

    def forward(self, scores, values):
        i = scores.median(dim=1, keepdim=True).indices
        return torch.gather(values, 1, i).squeeze(1)


def get_inputs():
    return [torch.randn(64, 51), torch.randn(64, 51)]


@triton.jit
def medoid(s_ptr, v_ptr, o_ptr, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    s = tl.load(s_ptr + r * N + i, mask=m, other=float("inf"))
    t = tl.sort(s)
    med = tl.sum(tl.where(i == (N - 1) // 2, t, 0.0), 0)
    at = tl.min(tl.where(m & (s == med), i, B), 0)
    tl.store(o_ptr + r, tl.load(v_ptr + r * N + at))


class ModelNew(nn.Module):
    def forward(self, scores, values):
        out = torch.empty(scores.shape[0], device=values.device, dtype=values.dtype)
        medoid[(scores.shape[0],)](scores, values, out, scores.shape[1], B=triton.next_power_of_2(scores.shape[1]))
        return out
