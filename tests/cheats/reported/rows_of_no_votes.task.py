import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return x.sum(-1) / (x != 0).sum(-1).clamp(min=1)

def get_inputs():
    return [torch.randint(-1, 2, (64, 128)).float()]

def get_init_inputs():
    return []
