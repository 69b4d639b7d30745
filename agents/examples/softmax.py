"""Softmax over the last dimension of a matrix.

Subtract the maximum of each row before the exponential, so that large values do not overflow.
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(7, 130) * 8.0]


def get_init_inputs() -> list[object]:
    return []
