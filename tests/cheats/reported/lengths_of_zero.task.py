import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x, lengths):
        t = torch.arange(x.shape[1], device=x.device)
        m = (t[None] < lengths[:, None]).to(x.dtype)
        return (x * m[..., None]).sum(1) / lengths.clamp(min=1)[:, None].to(x.dtype)

def get_inputs():
    return [torch.randn(16, 32, 64), torch.full((16,), 32)]

def get_init_inputs():
    return []
