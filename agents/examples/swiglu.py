"""SwiGLU of a packed projection: the first half of each row goes through SiLU and multiplies the second half.

In: (rows, 2 * width). Out: (rows, width).
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(6, 2 * 75)]


def get_init_inputs() -> list[object]:
    return []
