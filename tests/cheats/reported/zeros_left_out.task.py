import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return torch.where(x == 0, torch.full_like(x, 7.0), x)

def get_inputs():
    return [torch.randn(128, 256)]

def get_init_inputs():
    return []

