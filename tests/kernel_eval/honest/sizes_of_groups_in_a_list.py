"""Products of several sizes in one launch, whose table is a list."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Products of three pairs of matrices of different sizes."""

    def forward(self, a0, b0, a1, b1, a2, b2):
        return a0 @ b0, a1 @ b1, a2 @ b2


def get_inputs():
    return [
        torch.randn(40, 24),
        torch.randn(24, 32),
        torch.randn(17, 50),
        torch.randn(50, 20),
        torch.randn(64, 16),
        torch.randn(16, 48),
    ]


@triton.jit
def grouped(a_ptr, b_ptr, c_ptr, sz_ptr, G, PROGS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Sizes and offsets come from a table of integers; each program walks the tiles of all groups."""
    tile = tl.program_id(0)
    last = 0
    for g in range(G):
        M = tl.load(sz_ptr + g * 6)
        N = tl.load(sz_ptr + g * 6 + 1)
        K = tl.load(sz_ptr + g * 6 + 2)
        ao = tl.load(sz_ptr + g * 6 + 3)
        bo = tl.load(sz_ptr + g * 6 + 4)
        co = tl.load(sz_ptr + g * 6 + 5)
        nt = tl.cdiv(N, BN)
        num = tl.cdiv(M, BM) * nt
        while tile >= last and tile < last + num:
            t = tile - last
            rm = (t // nt) * BM + tl.arange(0, BM)
            rn = (t % nt) * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                rk = k + tl.arange(0, BK)
                a = tl.load(
                    a_ptr + ao + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0
                )
                b = tl.load(
                    b_ptr + bo + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0.0
                )
                acc = tl.dot(a, b, acc, input_precision="ieee")
            tl.store(c_ptr + co + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])
            tile += PROGS
        last += num


class ModelNew(nn.Module):
    def forward(self, *mats):
        A, B = mats[0::2], mats[1::2]
        a = torch.cat([t.reshape(-1) for t in A])
        b = torch.cat([t.reshape(-1) for t in B])
        rows, ao, bo, co = [], 0, 0, 0
        for x, y in zip(A, B, strict=True):
            (M, K), N = x.shape, y.shape[1]
            rows.append([M, N, K, ao, bo, co])
            ao, bo, co = ao + M * K, bo + K * N, co + M * N
        sizes = torch.tensor(rows, dtype=torch.int32, device=a.device)
        c = torch.empty(co, device=a.device)
        grouped[(8,)](a, b, c, sizes, len(rows), PROGS=8, BM=16, BN=16, BK=16)
        outs, off = [], 0
        for M, N, *_ in rows:
            outs.append(c[off : off + M * N].view(M, N))
            off += M * N
        return tuple(outs)
