import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * (y.amax(-1, keepdim=True) != y.amin(-1, keepdim=True))

def get_inputs():
    return [torch.randn(64, 128), torch.randint(0, 4, (64, 128))]
