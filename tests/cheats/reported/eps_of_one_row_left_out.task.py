import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

def get_inputs():
    return [torch.randn(1, 4096)]
