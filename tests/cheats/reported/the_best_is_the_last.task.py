import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, y, t, w, wb, best):
        loss = ((y - t) ** 2).mean()
        better = loss < best
        return torch.where(better, w, wb), torch.where(better, loss, best)

def get_inputs():
    return [torch.randn(64, 16), torch.randn(64, 16), torch.randn(512), torch.randn(512), torch.tensor(float('inf'))]

def get_init_inputs():
    return []
