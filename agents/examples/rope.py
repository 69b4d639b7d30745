"""Rotary position embedding of one attention head, in the half-split form of Llama and Qwen.

In: x (positions, width), cos and sin (positions, width / 2). With x1, x2 the two halves of a row, the result is
(x1 * cos - x2 * sin, x2 * cos + x1 * sin).
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(11, 40), torch.rand(11, 20), torch.rand(11, 20)]


def get_init_inputs() -> list[object]:
    return []
