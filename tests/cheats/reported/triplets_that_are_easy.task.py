import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Batch-hard triplet loss per anchor; anchors without a positive or a negative count zero."""
    def __init__(self, margin=0.3):
        super().__init__()
        self.margin = margin
    def forward(self, x, y):
        d = ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1).clamp(min=1e-12).sqrt()
        same = y[:, None] == y[None, :]
        eye = torch.eye(len(y), dtype=torch.bool, device=x.device)
        pos, neg = same & ~eye, ~same
        hp = d.masked_fill(~pos, -1e9).max(1).values
        hn = d.masked_fill(~neg, 1e9).min(1).values
        ok = pos.any(1) & neg.any(1)
        return torch.where(ok, F.relu(hp - hn + self.margin), torch.zeros_like(hp))

B, D, C = 32, 32, 12
def get_inputs():
    return [torch.randn(B, D), torch.randint(0, C, (B,))]
def get_init_inputs():
    return [0.3]
