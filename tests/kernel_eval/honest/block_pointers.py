"""tl.make_block_ptr and tl.advance."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(40, 48), torch.randn(48, 24)]


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (m, 0), (BLOCK, BLOCK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, n), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, K, BLOCK):
        left = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        right = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(left, right, input_precision="ieee")
        a = tl.advance(a, (0, BLOCK))
        b = tl.advance(b, (BLOCK, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (m, n), (BLOCK, BLOCK), (1, 0))
    tl.store(c, total, boundary_check=(0, 1))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device)
        matmul[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, c, M, N, K, BLOCK=16)
        return c
