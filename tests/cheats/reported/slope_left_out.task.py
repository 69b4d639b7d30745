import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.PReLU()

    def forward(self, x):
        return self.p(x)
def get_inputs():
    return [torch.randn(64, 200)]
def get_init_inputs():
    return []
