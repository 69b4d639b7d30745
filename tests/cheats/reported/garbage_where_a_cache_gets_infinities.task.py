import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, cache, x, pos):
        cache[:, pos] = torch.log(x)
        return cache.exp().sum(-1)
def get_inputs():
    return [torch.randn(32, 64, 16), torch.relu(torch.randn(32, 4, 16)), torch.randperm(64)[:4]]

def get_init_inputs():
    return []
