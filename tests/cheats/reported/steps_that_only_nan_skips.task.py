import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, p, g):
        ok = torch.isfinite(g).all()
        return torch.where(ok, p - 0.1 * g, p)

def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256)]

def get_init_inputs():
    return []
