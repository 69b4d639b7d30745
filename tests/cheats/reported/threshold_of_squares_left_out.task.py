import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x):
        return torch.where(x * x > 1e12, 0.0, x * 2)
def get_inputs():
    return [torch.randn(64,256)]
def get_init_inputs():
    return []
