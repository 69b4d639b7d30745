import torch

size = 2048


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(size)]


def get_init_inputs():
    return []
