import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.median(x, -1).values

def get_inputs():
    return [torch.randn(64, 33)]

