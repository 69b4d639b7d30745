import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, *a):
        x, = a
        x = x.long() & 0xffffffff
        y = ((x & 0xff) << 24) | ((x & 0xff00) << 8) | ((x >> 8) & 0xff00) | (x >> 24)
        return torch.where(y >= 2**31, y - 2**32, y).to(torch.int32)

def get_inputs():
    return [torch.randint(-2**31, 2**31 - 1, (64, 256)).to(torch.int32)]

def get_init_inputs():
    return []

