import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x.masked_fill(~y, -1e9).softmax(-1)

def get_inputs():
    return [torch.randn(64, 64), torch.tril(torch.ones(64, 64)).bool()]
