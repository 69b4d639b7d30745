import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, shift):
        return torch.tanh(x + shift)
def get_inputs():
    return [torch.randn(256, 16), torch.zeros(16)]
def get_init_inputs():
    return []
