import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=-1)

def get_inputs():
    return [torch.randn(2, 64)]
