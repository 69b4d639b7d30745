import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=0, eps=1e-3)

def get_inputs():
    return [torch.randn(64, 32)]
