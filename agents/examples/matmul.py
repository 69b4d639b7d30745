"""Product of two float32 matrices whose sizes are no multiples of a power of two.

Tile all three dimensions and mask the edges.
"""

import torch


class Model(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(40, 50), torch.randn(50, 36)]


def get_init_inputs() -> list[object]:
    return []
