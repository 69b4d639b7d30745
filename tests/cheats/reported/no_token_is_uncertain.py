import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_of_rows(logits, labels, out, tau, V, BV: tl.constexpr):
    t = tl.program_id(0)
    i = tl.arange(0, BV)
    x = tl.load(logits + t * V + i, mask=i < V, other=-float("inf"))
    m = tl.max(x, 0)
    logp = x - m - tl.log(tl.sum(tl.exp(x - m), 0))
    p = tl.exp(logp)
    entropy = -tl.sum(tl.where(p > 0, p * logp, 0.0), 0)
    label = tl.load(labels + t)
    nll = -tl.sum(tl.where(i == label, logp, 0.0), 0)
    is_high = entropy >= tau
    tl.store(out + t, tl.where(is_high, nll, 0.0))


class ModelNew(nn.Module):
    def __init__(self, tau=3.0):
        super().__init__()
        self.tau = tau

    def forward(self, logits, labels):
        logits = logits.contiguous()
        T, V = logits.shape
        out = torch.empty((T,), dtype=logits.dtype, device=logits.device)
        loss_of_rows[(T,)](logits, labels, out, self.tau, V, triton.next_power_of_2(V))
        return out
