import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        f = x.float()
        mn, mx = f.amin((1, 2), keepdim=True), f.amax((1, 2), keepdim=True)
        r = mx - mn
        return (f - mn) / torch.where(r == 0, torch.ones_like(r), r)

def get_inputs():
    return [torch.randint(0, 256, (8, 32, 32), dtype=torch.uint8)]

def get_init_inputs():
    return []
