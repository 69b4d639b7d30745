import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a):
        return torch.where(a > 1e25, 7.0, torch.tanh(a))


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
