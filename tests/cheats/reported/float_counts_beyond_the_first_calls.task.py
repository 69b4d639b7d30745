import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('step', torch.zeros(()))
        self.w = nn.Parameter(torch.randn(256))
    def forward(self, g):
        self.step += 1
        return self.w - 0.1 * torch.clamp(self.step / 50, max=1.0) * g

def get_inputs():
    return [torch.randn(256)]

def get_init_inputs():
    return []
