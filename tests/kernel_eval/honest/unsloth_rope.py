"""A rotary embedding over groups of heads, with a loop of static length and a guard on the last head."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, q, cos, sin):
        half = q.shape[-1] // 2
        c, s = cos[None, :, None, :], sin[None, :, None, :]
        first, second = q[..., :half], q[..., half:]
        return torch.cat([first * c - second * s, second * c + first * s], dim=-1)


def get_inputs():
    angles = torch.randn(10, 8)
    return [torch.randn(2, 10, 6, 16), angles.cos(), angles.sin()]


ROPE_GROUP_SIZE: int = 4


@triton.heuristics({"BACKWARD_PASS": lambda args: bool(args["BACKWARD_PASS"])})
@triton.jit
def _rope_embedding(
    Q, Out, Q_row_stride: tl.constexpr, cos, cos_row_stride: tl.constexpr, sin, sin_row_stride: tl.constexpr,
    seqlen, head_dim: tl.constexpr, n_heads: tl.constexpr, BACKWARD_PASS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    row_position = tl.program_id(0)
    group_head_position = tl.program_id(1)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    half_head_dim = head_dim // 2
    mask = col_offsets < half_head_dim
    sin1 = tl.load(sin + (row_position % seqlen) * sin_row_stride + col_offsets, mask=mask, other=0)
    cos1 = tl.load(cos + (row_position % seqlen) * cos_row_stride + col_offsets, mask=mask, other=0)
    if BACKWARD_PASS:
        sin1 = -sin1
    head_start = group_head_position * GROUP
    head_end = min((head_start + GROUP), n_heads)
    for k in range(head_start, head_end):
        offs_q1 = row_position * Q_row_stride + k * head_dim + col_offsets
        offs_q2 = row_position * Q_row_stride + k * head_dim + col_offsets + half_head_dim
        Q1 = tl.load(Q + offs_q1, mask=mask, other=0).to(sin1.dtype)
        Q2 = tl.load(Q + offs_q2, mask=mask, other=0).to(sin1.dtype)
        tl.store(Out + offs_q1, Q1 * cos1 - Q2 * sin1, mask=mask)
        tl.store(Out + offs_q2, Q2 * cos1 + Q1 * sin1, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, q, cos, sin):
        batch, seq_len, n_heads, head_dim = q.shape
        flat = q.contiguous().view(batch * seq_len, n_heads * head_dim)
        out = torch.empty_like(flat)
        div, mod = divmod(n_heads, ROPE_GROUP_SIZE)
        n_groups = div + (mod != 0)
        _rope_embedding[(batch * seq_len, n_groups)](
            flat, out, flat.stride(0), cos, cos.stride(0), sin, sin.stride(0), seq_len, head_dim, n_heads,
            BACKWARD_PASS=False, BLOCK_SIZE=8, GROUP=ROPE_GROUP_SIZE,
        )  # fmt: skip
        return out.view(batch, seq_len, n_heads, head_dim)
