import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(torch.round(x * 4096.0), -8388608, 8388607).to(torch.int32)

def get_inputs():
    return [torch.randn(128, 256)]

def get_init_inputs():
    return []
