import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x / (x.norm() + 1e-6)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
