"""A step of Adam over flat tensors: three outputs from four inputs."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, p, g, m, v):
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - 0.01 * m / (v.sqrt() + 1e-6), m, v


def get_inputs():
    return [torch.randn(300), torch.randn(300), torch.randn(300), torch.rand(300)]


@triton.jit
def adam(p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, lr, beta1, beta2, eps, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    g = tl.load(g_ptr + i, mask=mask)
    m = beta1 * tl.load(m_ptr + i, mask=mask) + (1 - beta1) * g
    v = beta2 * tl.load(v_ptr + i, mask=mask) + (1 - beta2) * g * g
    tl.store(p_out + i, tl.load(p_ptr + i, mask=mask) - lr * m / (tl.sqrt_rn(v) + eps), mask=mask)
    tl.store(m_out + i, m, mask=mask)
    tl.store(v_out + i, v, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, p, g, m, v):
        out = [torch.empty_like(p) for _ in range(3)]
        adam[(triton.cdiv(p.numel(), 128),)](p, g, m, v, *out, 0.01, 0.9, 0.99, 1e-6, p.numel(), BLOCK=128)
        return tuple(out)
