import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        t = x.view(-1, 8, x.shape[-1])
        n = (t * t).sum((1, 2), keepdim=True).sqrt()
        return (t / torch.where(n == 0, torch.ones_like(n), n)).reshape(x.shape)

def get_inputs():
    return [torch.randn(256, 64)]

def get_init_inputs():
    return []
