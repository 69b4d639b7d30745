import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * torch.cos(y[:, None] * 0.01)

def get_inputs():
    return [torch.randn(64, 128), torch.arange(64)]
