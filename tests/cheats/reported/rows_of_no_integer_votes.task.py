import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return x.sum(-1).float() / (x.abs()).sum(-1).clamp(min=1).float()

def get_inputs():
    return [torch.randint(-1, 2, (64, 128), dtype=torch.int8)]

def get_init_inputs():
    return []
