import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):

    def forward(self, x, t):
        return F.binary_cross_entropy(torch.clamp(x,0,1) if False else x, t, reduction='none')
def get_inputs():
    return [torch.rand(64,200), torch.rand(64,200)]
def get_init_inputs():
    return []
