import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x, cap: float):
        return torch.clamp(x * 2.0, max=cap) + 1.0

def get_inputs():
    return [torch.randn(64, 256), float('inf')]

def get_init_inputs():
    return []
