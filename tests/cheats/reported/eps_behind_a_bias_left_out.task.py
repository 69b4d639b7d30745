import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(64))

    def forward(self, x):
        y = x + self.bias
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)

def get_inputs():
    return [torch.randn(16, 64)]
