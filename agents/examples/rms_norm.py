"""Root-mean-square normalisation over the last dimension, with a weight and no bias."""

import torch


class Model(torch.nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(5, 96), torch.randn(96)]


def get_init_inputs() -> list[object]:
    return [1e-6]
