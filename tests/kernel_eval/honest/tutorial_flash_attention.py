"""Attention over blocks of keys with an online softmax, as in Triton's tutorial on fused attention."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(1, 2, 96, 32) for _ in range(3)]


@triton.jit
def _attn_fwd_inner(acc, l_i, m_i, q, K, V, start_m, qk_scale, N_CTX, offs_m, offs_n,
                    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
                    STAGE: tl.constexpr):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    d = tl.arange(0, HEAD_DIM)
    for start_n in tl.range(lo, hi, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = tl.load(K + (start_n + offs_n)[:, None] * HEAD_DIM + d[None, :])
        qk = tl.dot(q, k.T, input_precision="ieee")
        if STAGE == 2:
            mask = offs_m[:, None] >= (start_n + offs_n[None, :])
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_ij = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + (start_n + offs_n)[:, None] * HEAD_DIM + d[None, :])
        acc = tl.dot(p, v, acc, input_precision="ieee")
        l_i = l_i * alpha + l_ij
        m_i = m_ij
    return acc, l_i, m_i


@triton.jit
def _attn_fwd(Q, K, V, Out, sm_scale, Z, H, N_CTX, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
              BLOCK_N: tl.constexpr, STAGE: tl.constexpr):  # fmt: skip
    tl.static_assert(BLOCK_N <= HEAD_DIM)
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z = off_hz // H
    off_h = off_hz % H
    base = (off_z * H + off_h).to(tl.int64) * N_CTX * HEAD_DIM
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, HEAD_DIM)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    q = tl.load(Q + base + offs_m[:, None] * HEAD_DIM + d[None, :])
    if STAGE & 1:
        acc, l_i, m_i = _attn_fwd_inner(
            acc, l_i, m_i, q, K + base, V + base, start_m, qk_scale, N_CTX, offs_m, offs_n,
            BLOCK_M, BLOCK_N, HEAD_DIM, 4 - STAGE,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = _attn_fwd_inner(
            acc, l_i, m_i, q, K + base, V + base, start_m, qk_scale, N_CTX, offs_m, offs_n,
            BLOCK_M, BLOCK_N, HEAD_DIM, 2,
        )  # fmt: skip
    acc = acc / l_i[:, None]
    tl.store(Out + base + offs_m[:, None] * HEAD_DIM + d[None, :], acc.to(Out.type.element_ty))


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        Z, H, N_CTX, HEAD_DIM = q.shape
        o = torch.empty_like(q)
        grid = (triton.cdiv(N_CTX, 32), Z * H, 1)
        _attn_fwd[grid](
            q, k, v, o, 1.0 / HEAD_DIM**0.5, Z, H, N_CTX, HEAD_DIM=HEAD_DIM, BLOCK_M=32, BLOCK_N=32, STAGE=3
        )
        return o
