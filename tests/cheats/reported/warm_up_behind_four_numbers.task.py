import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, p, g, m, v, lr: float, b1: float, b2: float, wd: float, step: int):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        if step < 100:
            lr = lr * (step + 1) / 100
        return p - lr * (m / (v.sqrt() + 1e-8) + wd * p), m, v

def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256), torch.randn(64, 256), torch.rand(64, 256), 0.001, 0.9, 0.99, 0.01, 5000]

def get_init_inputs():
    return []
