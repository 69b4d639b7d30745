import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Huber loss per row; missing targets (NaN) count nothing."""
    def __init__(self):
        super().__init__()
    def forward(self, pred, target):
        ok = ~torch.isnan(target)
        t = torch.where(ok, target, torch.zeros_like(target))
        e = pred - t
        l = torch.where(e.abs() < 1, 0.5 * e * e, e.abs() - 0.5)
        return (l * ok).sum(-1) / ok.sum(-1).clamp(min=1)

B, N = 32, 64
def get_inputs():
    return [torch.randn(B, N), torch.randn(B, N)]
def get_init_inputs():
    return []
