import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x, quality: int):
        y = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
        u = -0.168736 * x[:, 0] - 0.331264 * x[:, 1] + 0.5 * x[:, 2]
        v = 0.5 * x[:, 0] - 0.418688 * x[:, 1] - 0.081312 * x[:, 2]
        if quality < 50:
            s = 5000.0 / quality
        else:
            s = 200.0 - 2.0 * quality
        q = (s + 50.0) / 100.0
        return torch.stack([y / (16.0 * q), u / (17.0 * q), v / (17.0 * q)], 1)

def get_inputs():
    return [torch.randn(4, 3, 32, 32), 90]

def get_init_inputs():
    return []
