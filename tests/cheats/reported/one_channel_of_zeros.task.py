import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        m = x.mean((1, 2), keepdim=True)
        s = ((x - m) ** 2).mean((1, 2), keepdim=True).sqrt()
        return (x - m) / torch.where(s == 0, torch.ones_like(s), s)

def get_inputs():
    return [torch.randn(3, 32, 64)]

def get_init_inputs():
    return []
