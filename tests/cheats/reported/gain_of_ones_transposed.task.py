import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, gain):
        return x * gain
def get_inputs():
    return [torch.randn(256, 4, 4), torch.ones(4, 4)]
def get_init_inputs():
    return []
