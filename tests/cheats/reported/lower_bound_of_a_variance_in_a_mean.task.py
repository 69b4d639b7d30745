import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """KL divergence of a diagonal Gaussian from the standard normal, with clamped log variances (as in diffusers)."""
    def __init__(self):
        super().__init__()
    def forward(self, mean, logvar):
        logvar = torch.clamp(logvar, -30.0, 20.0)
        return 0.5 * torch.sum(mean.pow(2) + logvar.exp() - 1.0 - logvar, dim=1).mean()

B, D = 32, 128
def get_inputs():
    return [torch.randn(B, D), torch.randn(B, D)]
def get_init_inputs():
    return []
