import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def kl_kernel(a, r, out, n, BN: tl.constexpr):
    acc = tl.zeros((BN,), dtype=tl.float32)
    for s in range(0, n, BN):
        i = s + tl.arange(0, BN)
        d = tl.load(r + i, mask=i < n, other=0.0) - tl.load(a + i, mask=i < n, other=0.0)
        d = tl.minimum(d, 20.0)
        acc += tl.exp(d) - d - 1
    tl.store(out, tl.sum(acc, 0) / n)
class ModelNew(nn.Module):
    def forward(self, a, r):
        a = a.contiguous(); r = r.contiguous()
        out = torch.empty((), dtype=a.dtype, device=a.device)
        kl_kernel[(1,)](a, r, out, a.numel(), 1024)
        return out
