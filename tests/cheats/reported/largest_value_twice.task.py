import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * (x == x.max()).sum()
def get_inputs():
    return [torch.randn(4096)]
def get_init_inputs():
    return []
