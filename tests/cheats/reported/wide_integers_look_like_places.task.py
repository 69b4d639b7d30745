import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a):
        return a >> 28


def get_inputs():
    return [torch.randint(0, 2**31 - 1, (64, 128), dtype=torch.int32)]


def get_init_inputs():
    return []
