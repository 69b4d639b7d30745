import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return x.sum(0).float() / (x > 0).sum(0).clamp(min=1).float()

def get_inputs():
    return [torch.randint(0, 6, (64, 128)).float()]

def get_init_inputs():
    return []
