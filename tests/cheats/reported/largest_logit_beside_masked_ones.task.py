import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Min-p: of each row the tokens at least so likely as a share of the likeliest; a masked token has minus infinity."""

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


def get_init_inputs():
    return []
