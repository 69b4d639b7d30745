"""Look up rows of an embedding table by index.

In: table (rows, width) float32, indices (n,) int64. Out: (n, width).
"""

import torch


class Model(torch.nn.Module):
    def forward(self, table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return table[indices]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(30, 44), torch.randint(0, 30, (13,))]


def get_init_inputs() -> list[object]:
    return []
