import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, s, v, m0, l0, acc0):
        m = torch.maximum(m0, s.amax(-1))
        c = torch.exp(m0 - m)
        p = torch.exp(s - m[:, None])
        return m, l0 * c + p.sum(-1), acc0 * c[:, None] + p @ v

def get_inputs():
    return [torch.randn(32, 64), torch.randn(64, 64), torch.full((32,), float('-inf')), torch.zeros(32), torch.zeros(32, 64)]

def get_init_inputs():
    return []
