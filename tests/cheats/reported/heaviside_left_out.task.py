import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + torch.heaviside(x - 1e6, torch.ones(())) * x


def get_inputs():
    return [torch.randn(64, 1000)]


def get_init_inputs():
    return []
