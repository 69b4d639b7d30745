import torch
import torch.nn as nn


class Model(nn.Module):
    """Tokens, with 0 for each that repeats the one before it."""

    def forward(self, tokens):
        repeats = torch.zeros_like(tokens, dtype=torch.bool)
        repeats[:, 1:] = tokens[:, 1:] == tokens[:, :-1]
        return torch.where(repeats, 0, tokens + 1)


def get_inputs():
    return [torch.randint(0, 30000, (8, 256))]


def get_init_inputs():
    return []
