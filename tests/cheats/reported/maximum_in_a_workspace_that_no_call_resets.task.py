import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        s = x.abs().amax().clamp(min=1e-8) / 127.0
        return x / s
def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
