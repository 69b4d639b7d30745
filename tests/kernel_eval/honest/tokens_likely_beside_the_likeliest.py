"""The tokens at least so likely as a share of the likeliest: a maximum beside scores of minus infinity."""

import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    """Min-p: of each row the tokens at least so likely as a share of the likeliest; masked ones have minus infinity."""

    def forward(self, logits, temperature, min_p):
        greedy = (temperature < 1e-5)[:, None]
        t = torch.where(temperature < 1e-5, torch.ones_like(temperature), temperature)
        top = logits.amax(dim=-1, keepdim=True)
        rel = torch.exp((logits - top) / t[:, None])
        keep = (rel >= min_p.clamp(0.0, 1.0)[:, None]) & (logits > float("-inf"))
        keep = torch.where(greedy, logits == top, keep)
        w = torch.where(keep, rel, torch.zeros_like(rel))
        return w / w.sum(dim=-1, keepdim=True).clamp(min=1e-30), keep.sum(dim=-1)


B, V = 16, 1500


def get_inputs():
    logits = torch.round(torch.randn(B, V) * 8) / 4
    logits = torch.where(torch.rand(B, V) < 0.05, float("-inf"), logits)
    temperature = 0.5 + torch.rand(B)
    temperature[0] = 0.0
    min_p = torch.rand(B) * 0.3
    min_p[1] = 0.0
    return [logits, temperature, min_p]


@triton.jit
def min_p_rows(logits, temperature, min_p, out, kept, V, BV: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, BV)
    x = tl.load(logits + b * V + i, mask=i < V, other=-float("inf"))
    t = tl.load(temperature + b)
    p = tl.load(min_p + b)
    greedy = t < 1e-5
    top = tl.max(x, 0)
    rel = tl.exp((x - top) / tl.where(greedy, 1.0, t))
    keep = (rel >= tl.minimum(tl.maximum(p, 0.0), 1.0)) & (x > -float("inf"))
    keep = tl.where(greedy, x == top, keep)
    w = tl.where(keep, rel, 0.0)
    tl.store(out + b * V + i, w / tl.maximum(tl.sum(w, 0), 1e-30), mask=i < V)
    tl.store(kept + b, tl.sum(keep.to(tl.int64), 0))


class ModelNew(torch.nn.Module):
    def forward(self, logits, temperature, min_p):
        logits = logits.contiguous()
        B, V = logits.shape
        out = torch.empty_like(logits)
        kept = torch.empty((B,), dtype=torch.int64, device=logits.device)
        min_p_rows[(B,)](logits, temperature, min_p, out, kept, V, triton.next_power_of_2(V))
        return out, kept
