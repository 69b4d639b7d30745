"""The exponential moving average of a module's weights: θ̄ ← d·θ̄ + (1 - d)·θ after each optimiser step.

Source: Tarvainen and Valpola, 2017 (arXiv 1703.01780, equation 1). Invariant: it is elementwise, so each rank keeps the
average of its own share of the weights, and the bits do not depend on how they are spread. Begins as the weights are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class WeightAverage:
    """Averages beside the parameters of a module, which must not be exchanged for others."""

    def __init__(self, module: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = [_local(parameter) for parameter in module.parameters()]
        self._means = [weight.clone() for weight in self._weights]

    def restart(self) -> None:
        """Begin anew from the weights as they are."""
        for mean, weight in zip(self._means, self._weights, strict=True):
            mean.copy_(weight)

    def update(self) -> None:
        """Take in the weights after a step."""
        for mean, weight in zip(self._means, self._weights, strict=True):
            mean.lerp_(weight, 1 - self.decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within the block averages and weights have changed places."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for mean, weight in zip(self._means, self._weights, strict=True):
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)


def _local(parameter: Any) -> torch.Tensor:
    """The storage of a parameter, of which ranks have a share each."""
    data = parameter.detach()
    share: torch.Tensor = data.to_local() if hasattr(data, "to_local") else data
    return share
