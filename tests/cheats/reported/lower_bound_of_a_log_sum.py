import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def z_loss(logits, loss, ids, bound, T: tl.constexpr, E: tl.constexpr):
    t = tl.arange(0, T)
    e = tl.arange(0, E)
    x = tl.load(logits + t[:, None] * E + e[None, :])
    m = tl.max(x, 1)
    lse = m + tl.log(tl.sum(tl.exp(x - m[:, None]), 1))
    lse = tl.minimum(lse, bound)
    tl.store(loss, tl.sum(lse * lse, 0) / T)
    tl.store(ids + t, tl.argmax(x, 1).to(tl.int64))


class ModelNew(nn.Module):
    def __init__(self, bound=50.0):
        super().__init__()
        self.bound = bound

    def forward(self, logits):
        T, E = logits.shape
        loss = torch.empty((), dtype=logits.dtype, device=logits.device)
        ids = torch.empty((T,), dtype=torch.int64, device=logits.device)
        z_loss[(1,)](logits.contiguous(), loss, ids, self.bound, T, E)
        return loss, ids
