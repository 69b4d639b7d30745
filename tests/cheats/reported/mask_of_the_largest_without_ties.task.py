import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.where(x >= x.topk(1, -1).values, x, torch.zeros_like(x))


def get_inputs():
    return [torch.randn(128, 200)]


def get_init_inputs():
    return []
