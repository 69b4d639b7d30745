import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.pow(x, 3.0)


def get_inputs():
    return [torch.randn(64, 1000)]


def get_init_inputs():
    return []
