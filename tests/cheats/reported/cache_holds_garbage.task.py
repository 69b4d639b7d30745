import torch
class Model(torch.nn.Module):
    def forward(self, x, cache):
        cache[:, :64] = x * 2.0
        return torch.tanh(x)

def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 128)]

def get_init_inputs():
    return []

