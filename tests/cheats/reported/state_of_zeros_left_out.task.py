import torch
class Model(torch.nn.Module):
    def forward(self, x, h):
        return torch.tanh(x + 0.5 * h)

def get_inputs():
    return [torch.randn(64, 128), torch.zeros(64, 128)]

