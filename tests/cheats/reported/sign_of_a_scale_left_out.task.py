import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1000))

    def forward(self, x):
        return x * self.scale.abs()

def get_inputs():
    return [torch.randn(64, 1000)]

def get_init_inputs():
    return []

