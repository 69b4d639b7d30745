"""A product with 8-bit weights that are scaled column by column."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x, weight, scale):
        return x @ (weight.float() * scale)


def get_inputs():
    return [torch.randn(32, 48), torch.randint(-128, 128, (48, 32), dtype=torch.int8), torch.rand(32) + 0.1]


@triton.jit
def dequantized(x_ptr, w_ptr, s_ptr, out_ptr, K, N, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + k[:, None] * N + n[None, :]).to(tl.float32)
        total += tl.dot(tl.load(x_ptr + m[:, None] * K + k[None, :]), w, input_precision="ieee")
    tl.store(out_ptr + m[:, None] * N + n[None, :], total * tl.load(s_ptr + n)[None, :])


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, scale):
        M, K = x.shape
        N = weight.shape[1]
        out = torch.empty(M, N, device=x.device)
        dequantized[(M // 16, N // 16)](x, weight, scale, out, K, N, BLOCK=16)
        return out
