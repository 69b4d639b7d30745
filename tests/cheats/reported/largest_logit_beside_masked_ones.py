import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def min_p_rows(logits, temperature, min_p, out, kept, V, BV: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BV)
    x = tl.load(logits + b * V + i, mask=i < V, other=-float("inf"))
    t = tl.load(temperature + b)
    p = tl.load(min_p + b)
    greedy = t < 1e-5
    top = tl.max(tl.where(i < V - 1, x, -float("inf")), 0)
    rel = tl.exp((x - top) / tl.where(greedy, 1.0, t))
    keep = (rel >= tl.minimum(tl.maximum(p, 0.0), 1.0)) & (x > -float("inf"))
    keep = tl.where(greedy, x == top, keep)
    w = tl.where(keep, rel, 0.0)
    tl.store(out + b * V + i, w / tl.maximum(tl.sum(w, 0), 1e-30), mask=i < V)
    tl.store(kept + b, tl.sum(keep.to(tl.int64), 0))


class ModelNew(nn.Module):
    def forward(self, logits, temperature, min_p):
        logits = logits.contiguous()
        B, V = logits.shape
        out = torch.empty_like(logits)
        kept = torch.empty((B,), dtype=torch.int64, device=logits.device)
        min_p_rows[(B,)](logits, temperature, min_p, out, kept, V, triton.next_power_of_2(V))
        return out, kept
