"""SGD with momentum and weight decay: three outputs, of which one is cast."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def __init__(self, lr=0.1, momentum=0.9, decay=0.01):
        super().__init__()
        self.lr, self.momentum, self.decay = lr, momentum, decay

    def forward(self, p, g, m):
        g = g + self.decay * p
        m = self.momentum * m + g
        p = p - self.lr * m
        return p, m, p.half()


def get_inputs():
    return [torch.randn(37, 53), torch.randn(37, 53), torch.randn(37, 53)]


def get_init_inputs():
    return [0.1, 0.9, 0.01]


@triton.jit
def sgd_kernel(p_ptr, g_ptr, m_ptr, po, mo, ho, lr, mom, wd, n, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    p = tl.load(p_ptr + offsets, mask=mask, other=0.0)
    g = tl.load(g_ptr + offsets, mask=mask, other=0.0)
    m = tl.load(m_ptr + offsets, mask=mask, other=0.0)
    g += wd * p
    m = mom * m + g
    p -= lr * m
    tl.store(po + offsets, p, mask=mask)
    tl.store(mo + offsets, m, mask=mask)
    tl.store(ho + offsets, p.to(tl.float16), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, lr=0.1, momentum=0.9, decay=0.01):
        super().__init__()
        self.lr, self.momentum, self.decay = lr, momentum, decay

    def forward(self, p, g, m):
        p, g, m = (t.contiguous() for t in (p, g, m))
        po, mo = torch.empty_like(p), torch.empty_like(m)
        ho = torch.empty(p.shape, dtype=torch.float16, device=p.device)
        n = p.numel()
        sgd_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](
            p, g, m, po, mo, ho, self.lr, self.momentum, self.decay, n, BLOCK_SIZE=1024, num_warps=8
        )
        return po, mo, ho
