import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argsort(x, dim=-1, stable=True)

def get_inputs():
    return [torch.randn(64, 64)]
