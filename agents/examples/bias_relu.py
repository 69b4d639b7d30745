"""Add a bias per channel to a batch of feature maps, then ReLU, in one pass.

In: x (batch, channels, positions), bias (channels,).
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + bias[None, :, None])


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 5, 50), torch.randn(5)]


def get_init_inputs() -> list[object]:
    return []
