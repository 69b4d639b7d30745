import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return (x >= 0.5).float().cumsum(-1)

def get_inputs():
    return [torch.randn(64, 128)]
