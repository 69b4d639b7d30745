import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(64))
    def forward(self, x):
        self.ema.copy_(0.9 * self.ema + 0.1 * x.sum(0))
        return torch.relu(x - self.ema), self.ema
def get_inputs():
    return [torch.randn(128, 64)]

def get_init_inputs():
    return []
