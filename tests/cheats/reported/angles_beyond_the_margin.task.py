import torch
import torch.nn as nn
import torch.nn.functional as F

import math
class Model(nn.Module):
    """ArcFace logits: an angular margin for the target class."""
    def __init__(self, dim=64, classes=32, s=30.0, m=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))
        self.s, self.m = s, m
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.th, self.mm = math.cos(math.pi - m), math.sin(math.pi - m) * m
    def forward(self, x, label):
        cos = F.normalize(x) @ F.normalize(self.weight).t()
        sin = torch.sqrt((1.0 - cos * cos).clamp(0, 1))
        phi = cos * self.cos_m - sin * self.sin_m
        phi = torch.where(cos > self.th, phi, cos - self.mm)
        one_hot = F.one_hot(label, cos.shape[1])
        return self.s * torch.where(one_hot == 1, phi, cos)

B, D, C = 64, 64, 32
def get_inputs():
    return [torch.randn(B, D), torch.randint(0, C, (B,))]
def get_init_inputs():
    return [D, C, 30.0, 0.5]
