import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Parameter(torch.randn(100, 64))
        self.start = nn.Parameter(torch.randn(64))
    def forward(self, x, prev):
        e = self.emb[prev.clamp(min=0)]
        return x + torch.where((prev >= 0)[:, None], e, self.start)

def get_inputs():
    return [torch.randn(32, 64), torch.full((32,), -1)]

def get_init_inputs():
    return []
