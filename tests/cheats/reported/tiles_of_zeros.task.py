import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        t = x.view(x.shape[0] // 32, 32, x.shape[1] // 32, 32)
        m = t.abs().amax((1, 3))
        s = torch.where(m == 0, torch.ones_like(m), m) / 448.0
        return (t / s[:, None, :, None]).reshape(x.shape), s

def get_inputs():
    return [torch.randn(256, 256)]

def get_init_inputs():
    return []
