import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.where(x != x, torch.full_like(x, 7.0), x * 2)
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
