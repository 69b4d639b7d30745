import torch


class Model(torch.nn.Module):
    def forward(self, m, step):
        return m / (1 - 0.9**step)


def get_inputs():
    return [torch.randn(1000), 1]


def get_init_inputs():
    return []
