"""A batched product with one operand transposed, strides as arguments."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.bmm(a.transpose(1, 2), b)


def get_inputs():
    return [torch.randn(3, 40, 24), torch.randn(3, 40, 20)]


@triton.jit
def bmm(a_ptr, b_ptr, c_ptr, M, N, K, sab, sam, sak, sbb, sbk, sbn, scb, scm, scn, BLOCK: tl.constexpr):
    batch = tl.program_id(2)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + batch * sab + m[:, None] * sam + k[None, :] * sak,
            mask=(m[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + batch * sbb + k[:, None] * sbk + n[None, :] * sbn,
            mask=(k[:, None] < K) & (n[None, :] < N),
            other=0.0,
        )
        total = tl.dot(a, b, acc=total, allow_tf32=False)
    tl.store(c_ptr + batch * scb + m[:, None] * scm + n[None, :] * scn, total, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a = a.transpose(1, 2)
        B, M, K = a.shape
        N = b.shape[2]
        c = torch.empty(B, M, N, device=a.device, dtype=a.dtype)
        bmm[(triton.cdiv(M, 16), triton.cdiv(N, 16), B)](
            a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), BLOCK=16
        )
        return c
