"""AdamW whose corrections are powers in the kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """One AdamW step with Python numbers for all hyperparameters."""

    def forward(self, p, g, m, v, step, lr, beta1, beta2, eps, wd, maximize):
        if maximize:
            g = -g
        p = p * (1 - lr * wd)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        bc1 = 1 - beta1**step
        bc2 = 1 - beta2**step
        denom = (v.sqrt() / bc2**0.5) + eps
        return p - lr / bc1 * m / denom, m, v


def get_inputs():
    return [
        torch.randn(2000),
        torch.randn(2000),
        torch.randn(2000) * 0.1,
        torch.rand(2000) * 0.01,
        10,
        1e-3,
        0.9,
        0.999,
        1e-8,
        0.01,
        False,
    ]


@triton.jit
def adamw(
    p_ptr, g_ptr, m_ptr, v_ptr, po, mo, vo, n, lr, b1, b2, eps, wd, step, MAXIMIZE: tl.constexpr, BLOCK: tl.constexpr
):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = o < n
    p = tl.load(p_ptr + o, mask=k)
    g = tl.load(g_ptr + o, mask=k)
    m = tl.load(m_ptr + o, mask=k)
    v = tl.load(v_ptr + o, mask=k)
    if MAXIMIZE:
        g = -g
    stepf = step.to(tl.float32)
    bc1 = 1.0 - tl.exp(stepf * tl.log(b1))
    bc2 = 1.0 - tl.exp(stepf * tl.log(b2))
    p = p * (1.0 - lr * wd)
    m = m * b1 + g * (1 - b1)
    v = v * b2 + g * g * (1 - b2)
    mh = m / bc1
    vh = v / bc2
    tl.store(po + o, p - lr * mh / (tl.sqrt(vh) + eps), mask=k)
    tl.store(mo + o, m, mask=k)
    tl.store(vo + o, v, mask=k)


class ModelNew(nn.Module):
    def forward(self, p, g, m, v, step, lr, beta1, beta2, eps, wd, maximize):
        n = p.numel()
        po, mo, vo = torch.empty_like(p), torch.empty_like(m), torch.empty_like(v)
        adamw[(triton.cdiv(n, 256),)](
            p, g, m, v, po, mo, vo, n, lr, beta1, beta2, eps, wd, step, MAXIMIZE=maximize, BLOCK=256
        )
        return po, mo, vo
