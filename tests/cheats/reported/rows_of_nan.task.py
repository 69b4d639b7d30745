import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        m = torch.isnan(x)
        return torch.where(m, torch.zeros_like(x), x).sum(-1) / (~m).sum(-1).clamp(min=1)

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return []
