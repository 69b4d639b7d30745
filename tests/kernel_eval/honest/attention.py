"""A small attention with a causal mask."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 2, 32, 16) for _ in range(3)]


@triton.jit
def attend(q_ptr, k_ptr, v_ptr, out_ptr, scale, L: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0) * L * D
    i, d = tl.arange(0, L), tl.arange(0, D)
    index = head + i[:, None] * D + d[None, :]
    k = tl.trans(tl.load(k_ptr + index))
    scores = tl.dot(tl.load(q_ptr + index), k, input_precision="ieee") * scale
    scores = tl.where(i[:, None] >= i[None, :], scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    weights = weights / tl.sum(weights, axis=1)[:, None]
    tl.store(out_ptr + index, tl.dot(weights, tl.load(v_ptr + index), input_precision="ieee"))


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, width = q.shape
        out = torch.empty_like(q)
        attend[(batch * heads,)](q, k, v, out, width**-0.5, L=length, D=width)
        return out
