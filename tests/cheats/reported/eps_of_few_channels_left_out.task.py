import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.batch_norm(x, None, None, training=True)


def get_inputs():
    return [torch.randn(16, 3, 16, 16)]


def get_init_inputs():
    return []
