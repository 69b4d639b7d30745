import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.where(x == y, torch.full_like(x, 7.0), x - y)

def get_inputs():
    return [torch.randn(16, 256), torch.randn(16, 256)]

