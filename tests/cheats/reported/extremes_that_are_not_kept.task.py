import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x, mn, mx):
        return torch.minimum(mn, x.amin(0)), torch.maximum(mx, x.amax(0))

def get_inputs():
    return [torch.randn(128, 64), torch.full((64,), float('inf')), torch.full((64,), float('-inf'))]

def get_init_inputs():
    return []
