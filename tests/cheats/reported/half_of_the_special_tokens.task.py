import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('special', torch.arange(32) * 997 + 13)
    def forward(self, x, ids):
        keep = ~torch.isin(ids, self.special)
        return (x * keep[..., None]).sum(1) / keep.sum(1).clamp(min=1)[:, None]

def get_inputs():
    return [torch.randn(8, 32, 16), torch.randint(0, 50000, (8, 32))]

def get_init_inputs():
    return []
