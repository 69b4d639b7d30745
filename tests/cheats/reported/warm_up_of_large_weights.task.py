import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, p, g, lr: float, step: int):
        if step < 100:
            lr = lr * (step + 1) / 100
        return p - lr * g

def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 1024), 0.1, 5000]

def get_init_inputs():
    return []
