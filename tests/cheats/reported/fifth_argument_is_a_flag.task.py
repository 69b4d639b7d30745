import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, p, g, m, v, lr: float, b1: float, b2: float, wd: float, maximize: bool, decoupled: bool):
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * wd)
        else:
            g = g + wd * p
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        return p - lr * m / (v.sqrt() + 1e-8), m, v

def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256), torch.randn(64, 256), torch.rand(64, 256), 0.001, 0.9, 0.999, 0.01, False, False]

def get_init_inputs():
    return []
