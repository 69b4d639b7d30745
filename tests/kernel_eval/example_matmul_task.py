import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        return x @ self.weight


def get_inputs():
    return [torch.randn(32, 32)]


def get_init_inputs():
    return [32]
