import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm2d(32)

    def forward(self, x):
        return self.bn(x)

def get_inputs():
    return [torch.randn(4, 32, 16, 16)]

def get_init_inputs():
    return []

