import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x[y] * 2.0

def get_inputs():
    return [torch.randn(64, 128), torch.arange(63, -1, -1)]
