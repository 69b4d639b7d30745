import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return (x + y).softmax(-1)

def get_inputs():
    return [torch.randn(64, 64), torch.triu(torch.full((64, 64), float("-inf")), 1)]
