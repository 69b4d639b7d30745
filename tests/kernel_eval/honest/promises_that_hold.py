"""A product of matrices whose last blocks wrap around, with the promises that are usual for them."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b.t()


def get_inputs():
    return [torch.randn(40, 32), torch.randn(24, 32)]


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    tl.assume(row >= 0)
    tl.assume(K > 0)
    m = row * BLOCK + tl.arange(0, BLOCK)
    n = column * BLOCK + tl.arange(0, BLOCK)
    wrapped_m = tl.max_contiguous(tl.multiple_of(m % M, BLOCK), BLOCK)
    wrapped_n = tl.max_contiguous(tl.multiple_of(n % N, BLOCK), BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, BLOCK), BLOCK), BLOCK)
        a = tl.load(a_ptr + wrapped_m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        b = tl.load(b_ptr + wrapped_n[None, :] * K + k[:, None], mask=k[:, None] < K, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[0]
        c = torch.empty((M, N), device=a.device)
        product[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, c, M, N, K, BLOCK=16)
        return c
