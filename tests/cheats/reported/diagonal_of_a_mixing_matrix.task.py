import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.eye(32))
    def forward(self, x):
        return torch.relu(x @ self.mix)
def get_inputs():
    return [torch.randn(128, 32)]

def get_init_inputs():
    return []
