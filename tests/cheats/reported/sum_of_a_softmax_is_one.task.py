import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).sum(-1)

def get_inputs():
    return [torch.randn(256, 64)]

