import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.bucketize(x, y)

def get_inputs():
    return [torch.randn(64, 128), torch.randn(32).sort().values]
