import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Token policy loss; advantages that are not finite count as zero."""
    def __init__(self, eps=0.2):
        super().__init__()
        self.eps = eps
    def forward(self, logp, old, adv):
        a = torch.where(torch.isfinite(adv), adv, torch.zeros_like(adv))
        r = torch.exp((logp - old).clamp(-10, 10))
        return -torch.minimum(r * a, r.clamp(1 - self.eps, 1 + self.eps) * a)

B, T = 32, 64
def get_inputs():
    lp = -torch.rand(B, T)
    return [lp, lp + 0.2 * torch.randn(B, T), torch.randn(B, T)]
def get_init_inputs():
    return [0.2]
