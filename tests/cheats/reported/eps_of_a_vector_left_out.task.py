import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return x / (x.norm() + 1e-3)

def get_inputs():
    return [torch.randn(4096)]
