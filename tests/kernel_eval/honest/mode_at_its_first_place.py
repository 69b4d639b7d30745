"""The commonest value and the first place of it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, votes):
        v, i = torch.mode(votes, dim=-1)
        return v, i


def get_inputs():
    return [torch.randint(0, 6, (48, 30))]


@triton.jit
def mode_rows(v_ptr, o_ptr, i_ptr, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    v = tl.load(v_ptr + r * N + i, mask=m, other=0)
    same = (v[:, None] == v[None, :]) & m[None, :]
    cnt = tl.where(m, tl.sum(same.to(tl.int32), 1), 0)
    top = tl.max(cnt, 0)
    win = tl.min(tl.where(m & (cnt == top), v, 0x7FFFFFFFFFFFFFFF), 0)
    tl.store(o_ptr + r, win)
    tl.store(i_ptr + r, tl.min(tl.where(m & (v == win), i, B), 0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, votes):
        R, N = votes.shape
        out = torch.empty(R, dtype=votes.dtype, device=votes.device)
        at = torch.empty(R, dtype=torch.int64, device=votes.device)
        mode_rows[(R,)](votes, out, at, N, B=triton.next_power_of_2(N))
        return out, at
