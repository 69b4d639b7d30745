import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Residual distribution of speculative sampling after a rejection; the target itself if nothing is left."""
    def __init__(self):
        super().__init__()
    def forward(self, p, q):
        r = (p - q).clamp(min=0)
        s = r.sum(-1, keepdim=True)
        return torch.where(s > 0, r / s, p)

B, V = 32, 128
def get_inputs():
    return [torch.softmax(torch.randn(B, V), -1), torch.softmax(torch.randn(B, V), -1)]
def get_init_inputs():
    return []
