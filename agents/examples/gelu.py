"""GELU in its exact form, x * Phi(x), with the error function and not the tanh approximation."""

import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 111)]


def get_init_inputs() -> list[object]:
    return []
