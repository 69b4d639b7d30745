import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return torch.relu(x).unfold(1, 8, 1) * 2.0
def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
