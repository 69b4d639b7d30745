"""A mean over one dimension of three, with the programs along the others."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


def get_inputs():
    return [torch.randn(4, 50, 12)]


@triton.jit
def mean_dim_kernel(inp, out, M, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    total = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)[:, None]
        mask = (n < N) and (k < K)
        total += tl.load(inp + m * N * K + n * K + k, mask, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0)[None, :] / N
    tl.store(out + m * K + k, mean, k < K)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        M, N, K = x.shape
        out = torch.empty((M, K), dtype=x.dtype, device=x.device)
        grid = (M, triton.cdiv(K, 8), 1)
        mean_dim_kernel[grid](x, out, M, N, K, BLOCK_N=16, BLOCK_K=8)
        return out
