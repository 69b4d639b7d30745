import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Mean of the low-variance KL estimate (k3) with a clamped log ratio."""
    def __init__(self):
        super().__init__()
    def forward(self, logp, ref_logp):
        d = (ref_logp - logp).clamp(-20.0, 20.0)
        return (d.exp() - d - 1).mean()

B, T = 16, 128
def get_inputs():
    a = -torch.rand(B, T) * 3
    return [a, a + 0.1 * torch.randn(B, T)]
def get_init_inputs():
    return []
